package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	clidisaggregated "lockstep.dev/lockstep/internal/cli/disaggregated"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/disaggregatedcache"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// collect collects a report on objects of namespace ns. The API server answers only reads of objects, and
// refuses those of one type.
func collect(t *testing.T, refused client.Object, names []string, objects ...client.Object) (map[string]string, error) {
	t.Helper()
	scheme, mapper := clilws.Scheme(), meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if slices.Contains([]string{"Node", "Namespace", "PersistentVolume", "ClusterRoleBinding"}, kind.Kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Trainer"}, meta.RESTScopeNamespace)
	live := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if _, isNode := into.(*corev1.Node); isNode && refused != nil {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, key.Name, errors.New("no"))
			}
			return c.Get(ctx, key, into, options...)
		},
	}).Build()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	asked := Request{Config: &rest.Config{Host: server.URL}, Live: live, Namespace: "ns", Command: "kubectl lockstep report", Now: time.Now, Warn: io.Discard}
	for _, name := range names {
		if roles, is := strings.CutPrefix(name, "dset/"); is {
			asked.Noun, name = clidisaggregated.Noun, roles
		}
		asked.Names = append(asked.Names, name)
	}
	packed, err := Collect(t.Context(), asked)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	expect.Value(packed.WriteTo(&archive))(t)
	return unpack(t, &archive), nil
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	packed := expect.Value(gzip.NewReader(archive))(t)
	files := map[string]string{}
	for reader := tar.NewReader(packed); ; {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		expect.OK(t, err)
		text := expect.Value(io.ReadAll(reader))(t)
		files[head.Name] = string(text)
	}
}

func pod(name, node, claim string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hidden-value"}}}}
	if claim != "" {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return p
}

// A bundle has what belongs to a set and what uses its PVCs, and nothing of other applications.
func TestABundleHasWhatConcernsTheSet(t *testing.T) {
	set := fakeapi.Set("llama", 1, 2)
	set.Namespace = "ns"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data-llama-0", UID: "claim", Labels: map[string]string{lwsv1.SetNameLabelKey: "llama"},
	}}
	reader, other, leader := pod("reader", "", "data-llama-0"), pod("other", "", "others"), pod("llama-0", "n", "")
	objects := []client.Object{set, claim, reader, other, leader, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}}
	files := expect.Value(collect(t, &corev1.Node{}, []string{"llama"}, objects...))(t)
	for name, want := range map[string]bool{
		"objects/leaderworkersets.leaderworkerset.x-k8s.io/ns/llama.json": true,
		"objects/persistentvolumeclaims/ns/data-llama-0.json":             true,
		"objects/pods/ns/llama-0.json":                                    true,
		"objects/pods/ns/reader.json":                                     true,
		"objects/pods/ns/other.json":                                      false,
		"objects/nodes/n.json":                                            false,
		"seen/why/data-llama-0.txt":                                       true,
		momentName:                                                        true,
	} {
		_, has := files[name]
		expect.Equalf(t, want, has, "%s", name)
	}
	for _, missed := range []string{"Nodes: you may not read it", "status and plan", "the operator"} {
		expect.Says(t, files[pageName], "- "+missed, missed)
	}
	for name, text := range files {
		expect.That(t, !strings.Contains(text, "hidden-value"), "%s has a value of the environment", name)
	}
}

// chat is a set of roles with a value in their environment.
func chat(value string) *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "chat", UID: "uid-of-chat", Generation: 2}}
	for _, name := range []string{"prefill", "decode"} {
		role := dsv1.DisaggregatedRole{Name: name, Spec: fakeapi.Set("x", 4, 1).Spec}
		role.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: value}}
		set.Spec.Roles = append(set.Spec.Roles, role)
	}
	set.Spec.Roles[1].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	return set
}

// rollingChat is a set of roles in the middle of a rollout: three old groups and one new group of each role, with pods.
func rollingChat(t *testing.T) (all []client.Object) {
	t.Helper()
	before, set := chat("hidden-value-1"), chat("hidden-value-2")
	scaler := disaggregated.Scaler(set, "decode", 4)
	scaler.UID = "uid-of-scaler"
	all = append(all, set, scaler)
	for number, of := range []*dsv1.DisaggregatedSet{before, set} {
		key := expect.Value(disaggregated.RevisionOf(of.Spec.Roles))(t)
		record := disaggregated.Record(of, key, int64(number+1))
		record.UID = types.UID(record.Name)
		all = append(all, record)
		for i := range of.Spec.Roles {
			groups := int32(3 - 2*number)
			place := disaggregated.Place{Revision: key, Role: of.Spec.Roles[i].Name}
			child := disaggregated.Child(of, &of.Spec.Roles[i], place, groups, 4)
			child.UID = types.UID(child.Name)
			all = append(all, child)
			for n := range groups {
				p := pod(fmt.Sprint(child.Name, "-", n), "", "")
				p.Labels = disaggregated.Labels("chat", place)
				p.Labels[lwsv1.SetNameLabelKey], p.Labels[lwsv1.GroupIndexLabelKey], p.Labels[lwsv1.WorkerIndexLabelKey] = child.Name, fmt.Sprint(n), "0"
				p.Annotations = map[string]string{lwsv1.SizeAnnotationKey: "1"}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				all = append(all, p)
			}
		}
	}
	return all
}

// decided is what the operator would write about a set of roles, with numbers in place of revisions.
func decided(t *testing.T, live client.Reader) (all []string) {
	t.Helper()
	observer := &disaggregatedcache.Observer{Sets: live, Beside: live, Live: live, IsLive: true}
	w := expect.Value(observer.Set(t.Context(), types.NamespacedName{Namespace: "ns", Name: "chat"}, time.Unix(1_700_000_000, 0)))(t)
	plan := expect.Value(set.Decide(w))(t)
	var revisions []string
	for _, record := range w.Records.Owned {
		number, key := fmt.Sprint("revision", record.Revision), expect.Value(disaggregated.RevisionOf(expect.Value(disaggregated.RolesOf(record))(t)))(t)
		expect.Equalf(t, key, record.Labels[dsv1.RevisionLabelKey], "%s", number)
		revisions = append(revisions, key, number)
	}
	for _, a := range plan.Actions {
		if _, isStatus := a.(action.WriteStatus); !isStatus { // it has times
			all = append(all, fmt.Sprintf("%s %s %s: %s", a.About().Verb, a.Target().Kind, a.Target().Name, a.About().Because.Sentence))
		}
	}
	expect.Equal(t, 4, len(revisions))
	return strings.Split(strings.NewReplacer(revisions...).Replace(strings.Join(all, "\n")), "\n")
}

// A report of a set of roles has all that its plan is made of, and no secret of its templates.
func TestAReportOnRolesReachesTheSamePlan(t *testing.T) {
	objects := rollingChat(t)
	server := fake.NewClientBuilder().WithScheme(clilws.Scheme())
	live := decided(t, server.WithObjects(objects...).Build())
	expect.That(t, len(live) >= 2, "the plan has only %v", live)
	for _, names := range [][]string{{"dset/chat"}, nil} {
		stranger := chat("hidden-value-3")
		stranger.Name, stranger.UID = "other", "uid-of-other"
		files := expect.Value(collect(t, nil, names, append(rollingChat(t), stranger)...))(t)
		replay := fake.NewClientBuilder().WithScheme(clilws.Scheme())
		for name, text := range files {
			for _, secret := range []string{"hidden-value", expect.Value(disaggregated.RevisionOf(chat("hidden-value-1").Spec.Roles))(t)} {
				expect.That(t, !strings.Contains(name+text, secret), "%s has %s", name, secret)
			}
			if strings.HasPrefix(name, "objects/") && !strings.HasPrefix(name, "objects/customresourcedefinitions") {
				object := &unstructured.Unstructured{}
				expect.OK(t, json.Unmarshal([]byte(text), object))
				replay.WithObjects(object)
			}
		}
		expect.Equal(t, live, decided(t, replay.Build()))
		for _, part := range []string{"status", "plan"} {
			expect.Says(t, files["seen/dset/chat/"+part+".txt"], "prefill")
		}
		for _, kind := range []string{"disaggregatedsets", "disaggregatedsetrolescalers"} {
			_, has := files["objects/customresourcedefinitions.apiextensions.k8s.io/"+kind+".disaggregatedset.x-k8s.io.json"]
			expect.That(t, has, "%s are not defined", kind)
		}
		_, has := files["objects/disaggregatedsets.disaggregatedset.x-k8s.io/ns/other.json"]
		expect.Equalf(t, names == nil, has, "a set that is not named")
	}
	_, err := collect(t, nil, []string{"dset/none"})
	expect.That(t, apierrors.IsNotFound(err), "got %v", err)
}

// The chart installs into any namespace: the binding of the operator's role names it.
func TestABundleHasTheOperatorOfAnotherNamespace(t *testing.T) {
	set, config, deployment := fakeapi.Set("llama", 1, 2), &corev1.ConfigMap{}, &appsv1.Deployment{}
	set.Namespace = "ns"
	config.Namespace, config.Name = "elsewhere", v1alpha1.InstalledName
	deployment.Namespace, deployment.Name, deployment.Labels = "elsewhere", "operator", map[string]string{"control-plane": "controller-manager"}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lockstep-protection-rolebinding"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "elsewhere", Name: "lws-controller-manager"}},
	}
	files := expect.Value(collect(t, nil, nil, set, config, deployment, binding))(t)
	for _, name := range []string{"objects/configmaps/elsewhere/lockstep-configuration.json", "objects/deployments.apps/elsewhere/operator.json"} {
		_, has := files[name]
		expect.That(t, has, "%s is missing", name)
	}
}

// Without names, a bundle is about the PVCs of the namespace too, used or not.
func TestABundleOfANamespaceHasItsPVCs(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim"}}
	files := expect.Value(collect(t, nil, nil, claim, pod("reader", "", "data"), pod("other", "", "")))(t)
	for name, want := range map[string]bool{"persistentvolumeclaims/ns/data": true, "pods/ns/reader": true, "pods/ns/other": false} {
		_, has := files["objects/"+name+".json"]
		expect.Equalf(t, want, has, "%s", name)
	}
}

func TestWhatInstalledAnObject(t *testing.T) {
	by := func(manager string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}, {Manager: manager}}}}
	}
	chart := by("helm")
	chart.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "lockstep-1.0"}
	catalog := by("catalog")
	catalog.Labels = map[string]string{"olm.owner": "lockstep"}
	for want, object := range map[string]client.Object{
		"Helm lockstep-1.0": chart, "OLM": catalog, "kubectl": by("kubectl-client-side-apply"), "lockstep install": by("lockstep-install"),
		"Flux": by("kustomize-controller"), unknown: by("someone"),
	} {
		expect.Equal(t, want, tool(object))
	}
}

// A report on 100 groups of 8 pods is whole.
func TestALargeSetFits(t *testing.T) {
	set := fakeapi.Set("llama", 100, 8)
	set.Namespace = "ns"
	objects := []client.Object{set}
	for i := range 800 {
		p := pod(fmt.Sprintf("llama-%d-%d", i/8, i%8), "", "")
		for n := range 40 {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VAR_%d", n), Value: fmt.Sprint(i, n)})
			p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, fmt.Sprint(n, i))
		}
		objects = append(objects, p)
	}
	files, err := collect(t, nil, nil, objects...)
	expect.That(t, err == nil && len(files) >= 801 && !strings.Contains(files[pageName], "does not fit"),
		"%d files, %v", len(files), err)
}

func TestASetThatDoesNotExistIsAnError(t *testing.T) {
	_, err := collect(t, nil, []string{"llama"})
	expect.That(t, apierrors.IsNotFound(err), "got %v", err)
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	files := []file{{"first", noise}, {"second", noise}, {"small", []byte("text")}}
	var left []string
	packed := expect.Value(pack(files, time.Now(), 6000, func(names []string) string { left = names; return "page" }))(t)
	fit := unpack(t, packed)
	if len(fit) != 4 || fit["small"] != "text" || fit[pageName] != "page" || len(left) != 1 || !strings.HasPrefix(left[0], "second: ") {
		t.Errorf("%d files fit, and %v is left", len(fit), left)
	}
}

// The archive defines the kinds of an installation, so a user needs no right to read definitions.
func TestABundleDefinesItsKinds(t *testing.T) {
	config := &corev1.ConfigMap{Data: map[string]string{v1alpha1.InstalledKey: "protection:\n  kinds:\n" +
		"  - {apiVersion: example.com/v1, kind: Trainer, podTemplates: [spec.template]}\n" +
		"  - {apiVersion: apps/v1, kind: ReplicaSet, podTemplates: [spec.template]}\n"}}
	config.Namespace, config.Name = v1alpha1.InstalledNamespace, v1alpha1.InstalledName
	files := expect.Value(collect(t, nil, nil, config))(t)
	const definitions = "objects/customresourcedefinitions.apiextensions.k8s.io/"
	for name, want := range map[string]bool{
		"leaderworkersets.leaderworkerset.x-k8s.io": true, "trainers.example.com": true, "replicasets.apps": false,
		"podgroups.scheduling.volcano.sh": false,
	} {
		text, has := files[definitions+name+".json"]
		expect.That(t, has == want && (!has || strings.Contains(text, `"x-kubernetes-preserve-unknown-fields":true`)),
			"%s: %t: %s", name, has, text)
	}
}

// Names that YAML would read as something else stay names.
func TestDefinitionOfAKindHasItsNames(t *testing.T) {
	made := definitionOf(&meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "no"},
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Yes"}, Scope: meta.RESTScopeNamespace,
	}, time.Unix(1_700_000_000, 0))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	expect.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, crd))
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "no", Singular: "yes", Kind: "Yes", ListKind: "YesList"}
	isStored := len(crd.Spec.Versions) == 1 && crd.Spec.Versions[0].Storage && crd.Status.StoredVersions[0] == "v1"
	if crd.Name != "no.example.com" || crd.Spec.Group != "example.com" || crd.Spec.Scope != apiextensionsv1.NamespaceScoped || !isStored ||
		crd.Spec.Names.Kind != names.Kind || crd.Spec.Names.Plural != names.Plural || crd.Status.AcceptedNames.ListKind != names.ListKind ||
		!apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		t.Errorf("got %+v", crd)
	}
}

// A port that cannot be forwarded, as where no kubelet runs, is an error. The report then lacks metrics alone.
func TestAPortThatCannotBeForwardedIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	kube := expect.Value(kubernetes.NewForConfig(config))(t)
	c := &collector{Request: Request{Config: config}, kube: kube}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "operator-0"}}
	_, err := c.forward(t.Context(), pod, 8443)
	expect.That(t, err != nil, "got %v", err)
}
