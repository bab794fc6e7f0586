package install

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// clusterOf is a cluster without controllers.
func clusterOf(t *testing.T) (*cluster, client.WithWatch) {
	t.Helper()
	expect.OK(t, apiextensionsv1.AddToScheme(clientgoscheme.Scheme))
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().Build()
	return &cluster{Options: Options{Out: io.Discard, Timeout: time.Second}, client: c}, c
}

// An object with the labels of protection is found if it is a policy or a ClusterRole.
func TestCopiedLabelsMakeNothingOurs(t *testing.T) {
	c, _ := clusterOf(t)
	for kind, group := range map[string]string{
		"ConfigMap": "v1", "Service": "v1", "ServiceAccount": "v1", "Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	} {
		u := Bare(group, kind, "prod", "mine")
		if kind == "ClusterRole" || kind == "ValidatingAdmissionPolicy" {
			u.SetNamespace("")
		}
		u.SetLabels(map[string]string{nameLabel: standaloneLabel, componentLabel: "protection"})
		expect.OK(t, c.client.Create(t.Context(), u, client.FieldOwner("kubectl")))
	}
	found := titles(must(c.installed(t.Context())))
	if slices.Sort(found); !slices.Equal(found, []string{"clusterrole.rbac.authorization.k8s.io/mine", "validatingadmissionpolicy.admissionregistration.k8s.io/mine"}) {
		t.Errorf("found %q", found)
	}
}

// A user gives the operator memory for a large cluster. Another install keeps it, and takes none away from the manifest.
func TestInstallKeepsMoreMemory(t *testing.T) {
	deployment := func(requests, limits any) *unstructured.Unstructured {
		u := Bare("apps/v1", "Deployment", namespaceName, deploymentName)
		resources := map[string]any{"requests": map[string]any{"cpu": "1", "memory": requests}, "limits": map[string]any{"memory": limits}}
		container := map[string]any{"name": "manager", "resources": resources}
		u.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
		return u
	}
	for name, tt := range map[string]struct{ requests, limits, wantRequests, wantLimits any }{
		"the same":       {"1Gi", "1Gi", "1Gi", "1Gi"},
		"more":           {"2Gi", "4Gi", "2Gi", "4Gi"},
		"a higher limit": {"1Gi", "2Gi", "1Gi", "2Gi"},
		"less":           {"512Mi", "512Mi", "1Gi", "1Gi"},
		"no limit":       {"1Gi", "0", "1Gi", "1Gi"},
	} {
		c, live := clusterOf(t)
		before := deployment(tt.requests, tt.limits)
		expect.OK(t, live.Create(t.Context(), before))
		expect.Value(c.apply(t.Context(), deployment("1Gi", "1Gi")))(t)
		resources := operatorIn(must(Live(t.Context(), c.client, before)))["resources"]
		want := map[string]any{"requests": map[string]any{"cpu": "1", "memory": tt.wantRequests}, "limits": map[string]any{"memory": tt.wantLimits}}
		expect.Equalf[any](t, want, resources, "%s", name)
	}
}

// Two installs at once: the loser of a race reads again.
func TestAnotherInstallAtTheSameTime(t *testing.T) {
	for name, race := range map[string]func(*cluster, *unstructured.Unstructured) error{
		"creates the object first": func(c *cluster, u *unstructured.Unstructured) error { return c.create(t.Context(), u) },
		"changes the object first": func(c *cluster, u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{"theirs": "yes"})
			if err := c.create(t.Context(), u.DeepCopy()); err != nil {
				return err
			}
			return apierrors.NewConflict(schema.GroupResource{}, u.GetName(), nil)
		},
	} {
		other, store := clusterOf(t)
		c, raced := *other, false
		c.client = interceptor.NewClient(store, interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if u := o.(*unstructured.Unstructured); !raced {
					raced = true
					if err := race(other, u.DeepCopy()); err != nil {
						return err
					}
				}
				return to.Create(ctx, o, options...)
			},
		})
		u := Bare("v1", "ServiceAccount", "prod", "lws")
		u.SetLabels(map[string]string{"ours": "yes"})
		_, err := c.apply(t.Context(), u)
		expect.That(t, err == nil, "%s: %v", name, err)
		live := must(Live(t.Context(), c.client, u))
		expect.That(t, live != nil && live.GetLabels()["ours"] == "yes", "%s: got %v", name, live)
	}
}

// What is wrong with an address is said before anything is written, by install and by --print.
func TestAWebhookURLIsCheckedFirst(t *testing.T) {
	for address, isRight := range map[string]bool{
		"https://10.0.0.1:9443": true, "https://[::1]:9443/": true, "https://host.example.com/a": true, "HTTPS://h:1": true,
		"http://10.0.0.1:9443": false, "10.0.0.1:9443": false, "host:9443": false, "https:host": false, "https://": false, "https://:9443": false,
		"https://h:99999": false, "https://h:0": false, "https://h:port": false, "https://h h:1": false, "https://u:secret@h:1": false,
		"https://h:1?a=b": false, "https://h:1?": false, "https://h:1#a": false, "https://h:1#": false, "lws-webhook-service.lws-system": false,
	} {
		_, err := Options{WebhookURL: address}.shape(nil)
		if (err == nil) != isRight || err != nil && (!strings.Contains(err.Error(), "--webhook-url") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	var out strings.Builder
	err := Install(t.Context(), Options{WebhookURL: "http://h", Print: true, Out: &out})
	expect.That(t, err != nil && out.Len() == 0, "--print: got %v, printed %q", err, out.String())
}

// Without an operator, the last line says that no set can be created.
func TestAnInstallationWithoutAnOperatorSaysSo(t *testing.T) {
	for name, tt := range map[string]struct {
		options Options
		runs    bool
		want    bool
	}{
		"no operator":              {want: true},
		"an operator stays":        {runs: true},
		"an operator is installed": {options: Options{Image: "i"}},
		"an address":               {options: Options{WebhookURL: "https://h"}},
		"protection alone":         {options: Options{ProtectOnly: true}},
	} {
		c, live := clusterOf(t)
		if tt.runs {
			u := Bare("apps/v1", "Deployment", namespaceName, deploymentName)
			u.SetLabels(map[string]string{"control-plane": "controller-manager"})
			expect.OK(t, live.Create(t.Context(), u))
		}
		var out strings.Builder
		c.Out = &out
		s := must(tt.options.shape(nil))
		err := s.sayUnattended(t.Context(), c)
		expect.That(t, err == nil && (out.Len() > 0) == tt.want, "%s: got %v, said %q", name, err, out.String())
	}
}

func TestTheConfigurationOfAnotherImplementation(t *testing.T) {
	for name, tt := range map[string]struct {
		text, kept string
		dropped    []string
	}{
		"as it is": {
			header + "leaderElection: {leaderElect: true}\ninternalCertManagement: {enable: true}\n", "leaderElect: true", nil,
		},
		"of the next version": {
			"apiVersion: config.lws.x-k8s.io/v1\nkind: Configuration\nclientConnection: {qps: 50}\nfeatureGates: {WorkloadAwareScheduling: true}\n", "WorkloadAwareScheduling: true", nil,
		},
		"with what this version lacks": {
			header + "gangSchedulingManagement: {schedulerProvider: volcano}\nwebhook: {port: 9444, speed: 3}\nfeatureGates: {Unheard: true}\n" +
				"internalCertManagement: {enable: false}\n",
			"schedulerProvider: volcano",
			[]string{"featureGates.Unheard", "internalCertManagement.enable", "webhook.port", "webhook.speed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, dropped, err := applicable(tt.text)
			expect.Must(t, err == nil && strings.Contains(string(config), tt.kept), "%v, kept:\n%s", err, config)
			expect.Equalf(t, tt.dropped, dropped, "left out")
			c := expect.Value(operator.ParseConfig(config))(t)
			faults := operator.ValidateConfig(c)
			expect.That(t, len(faults) == 0 && len(unfit(c)) == 0, "what is kept is refused: %v, %v", faults, unfit(c))
		})
	}
	for _, text := range []string{"{", "apiVersion: v1\nkind: ConfigMap\n"} {
		_, _, err := applicable(text)
		expect.That(t, err != nil, "%q is taken over", text)
	}
}

// A StatefulSet that was deleted and created again runs on PVCs whose owner is gone. Their
// hold alone keeps them from the garbage collector.
func TestPVCsInUseWhoseOwnersAreGoneBlock(t *testing.T) {
	owned := func(uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: types.UID(uid), Controller: new(true)}
	}
	other := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: kind, Name: "db", UID: "x"}}
	}
	gone := func(holder string) []string {
		return []string{"prod/data-db-0", "in use by " + holder, "StatefulSet/db", pvc.Disown}
	}
	for name, tt := range map[string]struct {
		holders   string
		owners    []metav1.OwnerReference
		finalizer string // of an owner that is being deleted
		says      []string
	}{
		"of an earlier incarnation":    {"StatefulSet/db", []metav1.OwnerReference{owned("1")}, "", gone("StatefulSet/db")},
		"of this incarnation":          {"StatefulSet/db", []metav1.OwnerReference{owned("2")}, "", nil},
		"of both":                      {"StatefulSet/db", []metav1.OwnerReference{owned("1"), owned("2")}, "", nil},
		"of a kind that is not served": {"StatefulSet/db", other("Unserved"), "", nil},
		"that cannot be read":          {"StatefulSet/db", other("Unread"), "", []string{`Unread "db", which owns PVC "prod/data-db-0"`}},
		"not held":                     {"", []metav1.OwnerReference{owned("1")}, "", nil},
		"without an owner":             {"StatefulSet/db", nil, "", nil},
		"deleted in the foreground":    {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerDeleteDependents, gone("Pod/shell")},
		"orphaned":                     {"Pod/shell", []metav1.OwnerReference{owned("2")}, metav1.FinalizerOrphanDependents, nil},
	} {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db", UID: "2"}}
		if tt.finalizer != "" {
			owner.DeletionTimestamp, owner.Finalizers = &metav1.Time{Time: time.Now()}, []string{tt.finalizer}
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "data-db-0", UID: "c", OwnerReferences: tt.owners, Annotations: map[string]string{pvc.HoldersAnnotation: tt.holders},
		}}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claim, owner).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				switch o.GetObjectKind().GroupVersionKind().Kind {
				case "Unserved":
					return &meta.NoKindMatchError{}
				case "Unread":
					return errors.New("etcd has no leader")
				}
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
		err := (&cluster{Options: Options{Timeout: time.Minute}, client: c}).removal(nil, nil).refuse(t.Context())
		expect.Equalf(t, tt.says != nil, err != nil, "%s: %v", name, err)
		for _, part := range tt.says {
			expect.ErrorSays(t, err, part, name)
		}
	}
}

// stage is a cluster with PVCs and what else has fields of ours.
func stage(t *testing.T, objects ...client.Object) *removal {
	t.Helper()
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithIndex(&corev1.Pod{}, "spec.nodeName", byNode).Build()
	r := (&cluster{Options: Options{Out: io.Discard, Timeout: time.Second}, client: c}).removal(nil, nil)
	r.strips = true
	return r
}

func claimWith(name string, leaving bool, finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, UID: types.UID(name), Finalizers: finalizers,
		Annotations: map[string]string{pvc.HoldersAnnotation: "Pod/x", pvc.ModeKey: "hold", "mine": "stays"},
	}}
	if leaving {
		claim.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return claim
}

func podOf(claim string, gates ...corev1.PodSchedulingGate) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "of-" + claim, UID: types.UID("pod-" + claim)}}
	pod.Spec.Volumes = fakeapi.Using(claim)
	if pod.Spec.SchedulingGates = gates; len(gates) == 0 {
		pod.Spec.NodeName = "n"
	}
	return pod
}

// A use record that cannot be read blocks only where no built-in controller keeps the PVC.
func TestAnUnreadableRecordBlocks(t *testing.T) {
	for finalizer, blocks := range map[string]bool{pvc.BarrierFinalizer: true, pvc.PodsFinalizer: false} {
		claim := claimWith("leaving", true, finalizer)
		claim.SetAnnotations(map[string]string{pvc.UsersAnnotation: "?"})
		err := stage(t, claim).refuse(t.Context())
		expect.Equalf(t, blocks, err != nil, "with %s: got %v", finalizer, err)
	}
}

// A PVC that is being deleted and in use blocks. One whose pod ends later is not released.
func TestPVCsThatLeaveInUseBlock(t *testing.T) {
	for name, tt := range map[string]struct {
		alone     bool
		finalizer string
	}{"beside the built-in": {false, pvc.BarrierFinalizer}, "alone": {true, pvc.PodsFinalizer}} {
		r := stage(t, claimWith("leaving", true, tt.finalizer), podOf("leaving"))
		r.ours.Alone = tt.alone
		expect.ErrorSays(t, r.refuse(t.Context()), "prod/leaving (is being deleted)", name)
		expect.ErrorSays(t, r.stripAll(t.Context()), "prod/leaving", name)
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "leaving"}, &corev1.PersistentVolumeClaim{}); err != nil {
			t.Errorf("%s: lost: %v", name, err)
		}
	}
}

// Leaders lose their gate with the installation that ran sets: nothing else takes it off, nor what it cost to delete
// them meanwhile.
func TestLeadersLoseTheirGate(t *testing.T) {
	for _, ofSets := range []bool{true, false} {
		pod := podOf("x", corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate}, corev1.PodSchedulingGate{Name: "example.com/mine"})
		pod.Annotations = map[string]string{corev1.PodDeletionCost: "-100"}
		r := stage(t, pod)
		r.frees = ofSets
		expect.OK(t, r.stripAll(t.Context()))
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || (len(pod.Spec.SchedulingGates) == 1) != ofSets {
			t.Errorf("of sets %v: %v, %v", ofSets, pod.Spec.SchedulingGates, err)
		}
		expect.Equalf(t, ofSets, pod.Annotations[corev1.PodDeletionCost] == "", "of sets %v: no deletion cost", ofSets)
	}
}

// The way back names the sets that the other implementation refuses, and no others.
func TestSetsThatWorkOnlyHere(t *testing.T) {
	c, live := clusterOf(t)
	for name, spec := range map[string]map[string]any{
		"a": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(0)}},
		"b": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{}},
		"c": {"groupIdentity": "Ordinal", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"d": {"leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
		"e": {"groupIdentity": "Hash", "leaderWorkerTemplate": map[string]any{"maxGroupRestarts": int64(3)}},
	} {
		expect.OK(t, live.Create(t.Context(), storedSet("LeaderWorkerSet", name, spec)))
	}
	var out strings.Builder
	c.Out = &out
	if err := c.sayOnlyHere(t.Context()); err != nil || strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "ns/a,") || !strings.Contains(out.String(), "ns/e,") {
		t.Errorf("got %v, said %q", err, out.String())
	}
}

// storedSet is a set of either kind, or a scaler.
func storedSet(kind, name string, spec map[string]any) *unstructured.Unstructured {
	u := Bare(strings.TrimSuffix(strings.ToLower(kind), "rolescaler")+".x-k8s.io/v1", kind, "ns", name)
	u.Object["spec"] = spec
	return u
}

// Sets of both kinds, and scalers that outlived theirs, would be deleted with their definitions: they block an uninstall.
func TestSetsOfBothKindsBlock(t *testing.T) {
	for _, kind := range []string{"LeaderWorkerSet", "DisaggregatedSet", "DisaggregatedSetRoleScaler"} {
		c, live := clusterOf(t)
		expect.OK(t, c.refuseWithSets(t.Context()))
		expect.OK(t, live.Create(t.Context(), storedSet(kind, "mine", nil)))
		err := c.refuseWithSets(t.Context())
		expect.ErrorSays(t, err, "ns/mine; nothing was removed", kind)
	}
}

// Fields of each definition that this version lacks are named, and kept on request.
func TestNoDefinitionLosesFields(t *testing.T) {
	for _, ours := range load(t, Options{}) {
		if !isDefinition(ours) {
			continue
		}
		c, live := clusterOf(t)
		newer := ours.DeepCopy()
		versions, _, _ := unstructured.NestedSlice(newer.Object, "spec", "versions")
		at := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "novelty"}
		expect.OK(t, unstructured.SetNestedField(versions[0].(map[string]any), map[string]any{"type": "string"}, at...))
		expect.OK(t, unstructured.SetNestedSlice(newer.Object, versions, "spec", "versions"))
		expect.OK(t, live.Create(t.Context(), newer))
		wanted := []*unstructured.Unstructured{ours.DeepCopy()}
		err := c.fit(t.Context(), wanted)
		expect.ErrorSays(t, err, ours.GetName(), "a field is lost")
		expect.ErrorSays(t, err, "spec.novelty", ours.GetName())
		c.KeepFields = true
		expect.OKf(t, c.fit(t.Context(), wanted), "%s with --keep-fields", ours.GetName())
	}
}

// An authority is an installation's if an installer labelled it. Uninstall leaves that of a user.
func TestAnAuthorityOfAUserIsNotInstalled(t *testing.T) {
	for _, isOurs := range []bool{true, false} {
		c, live := clusterOf(t)
		secret := (&shape{}).secret(certs.AuthoritySecret, nil)
		if !isOurs {
			secret.SetLabels(nil)
		}
		expect.OK(t, live.Create(t.Context(), secret))
		found := must(c.installed(t.Context()))
		expect.Equalf(t, isOurs, isIn(secret, found), "found %q", titles(found))
	}
}
