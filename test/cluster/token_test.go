package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/volcano"
)

// Answers to a client that has the token of the operator.
const (
	refusedByRoles  = "refused by the roles"
	refusedByPolicy = "refused by a policy about the operator"
	admitted        = "admitted"
)

// leastRequests is how many requests a drill with the operator's token sends.
const leastRequests = 200

// attempt is one request. One that is to be admitted is a dry run.
type attempt struct {
	verb, path, body, want string
	as                     string // the user to impersonate
}

// thief sends requests with the token of the operator.
type thief struct {
	*scene
	host string
	http *http.Client
	sent int
}

func newThief(s *scene) *thief {
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "lws-system", Name: "lws-controller-manager"}}
	s.Check("take the operator's token", s.Client.SubResource("token").Create(s.Context(), account, request))
	config := rest.AnonymousClientConfig(bed.Rest)
	config.BearerToken = request.Status.Token
	web, err := rest.HTTPClientFor(config)
	s.Check("make a client with the token", err)
	return &thief{scene: s, host: strings.TrimRight(config.Host, "/"), http: web}
}

var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete, "get": http.MethodGet,
}

// try sends a request, and returns the answer.
func (f *thief) try(a attempt) string {
	address := f.host + a.path
	if a.want == admitted && a.verb != "get" {
		address += "?dryRun=All"
	}
	request, err := http.NewRequestWithContext(f.Context(), methods[a.verb], address, strings.NewReader(a.body))
	f.Check(a.path, err)
	request.Header.Set("Content-Type", "application/json")
	switch {
	case a.verb == "patch" && strings.HasPrefix(a.body, "["):
		request.Header.Set("Content-Type", "application/json-patch+json")
	case a.verb == "patch":
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if a.as != "" {
		request.Header.Set("Impersonate-User", a.as)
	}
	f.sent++
	answer, err := f.http.Do(request)
	f.Check(a.path, err)
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	answer.Body.Close()
	f.Check(a.path, err)
	switch {
	case answer.StatusCode < 300:
		return admitted
	case answer.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte("ValidatingAdmissionPolicy 'lws-operator-")):
		return refusedByPolicy
	case answer.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte(" cannot ")):
		return refusedByRoles
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, text)
}

func (f *thief) tryAll(t *testing.T, what string, all []attempt) {
	t.Run(what, func(t *testing.T) {
		for _, a := range all {
			if got := f.try(a); got != a.want {
				t.Errorf("%s %s %s %s: got %s, want %s", a.verb, a.path, a.as, a.body, got, a.want)
			}
		}
	})
}

// TestTheOperatorsTokenIsBounded sends what a client with the operator's token may want to do. The roles or the policies
// refuse everything but what the operator does. What looks like that is admitted.
func TestTheOperatorsTokenIsBounded(t *testing.T) {
	s := newScene(t)
	s.victims()
	f := newThief(s)
	f.tryAll(t, "namespaces", f.namespaces())
	f.tryAll(t, "volumes", f.volumes())
	f.tryAll(t, "claims", f.claims())
	f.tryAll(t, "objects of others", f.others())
	f.tryAll(t, "pods of a set", f.podsOfSet())
	f.tryAll(t, "new objects", f.creations())
	f.tryAll(t, "namespaces of the cluster", f.systemNamespaces())
	f.tryAll(t, "what only roles refuse", f.roles())
	f.tryAll(t, "webhooks and their certificates", f.certificates())
	f.tryAll(t, "what cannot be told from the operator", f.unbounded())
	if f.sent < leastRequests {
		t.Errorf("only %d requests were sent", f.sent)
	}
	t.Logf("%d requests were sent", f.sent)
	s.awaitSettled(s.Set("a"))
}

const (
	podSecurity = "pod-security.kubernetes.io/enforce"
	foreignGate = "example.com/gate"
	otherImage  = `[{"op":"replace","path":"/spec/containers/0/image","value":"mine"}]`
	tolerating  = `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"mine","operator":"Exists"}}]`
)

// victims creates a set, and objects of others.
func (s *scene) victims() {
	s.Patch(s.Itself(), fmt.Sprintf(`{"metadata":{"labels":{%q:"baseline"}}}`, podSecurity))
	labels := map[string]string{"app": "web"}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels, Annotations: map[string]string{"note": "mine"}}
	}
	selector, pod := &metav1.LabelSelector{MatchLabels: labels}, template(imageA)
	pod.Labels = labels
	gated := pod.Spec.DeepCopy()
	gated.SchedulingGates = []corev1.PodSchedulingGate{{Name: foreignGate}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace, Labels: labels, Finalizers: []string{"example.com/keep"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, StorageClassName: "none",
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: s.Namespace, Name: "elsewhere"},
		},
	}
	s.Lend(volume)
	s.freeAtEnd(volume)
	solo := &corev1.Pod{ObjectMeta: meta("solo"), Spec: *gated}
	s.Create(solo)
	driver := &corev1.Service{ObjectMeta: meta("driver"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels}}
	driver.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: solo.Name, UID: solo.UID, Controller: ptr.To(true)}}
	for _, o := range []client.Object{
		driver,
		&appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: pod}},
		&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: pod}},
		&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}},
		&appsv1.ControllerRevision{ObjectMeta: meta("rev"), Revision: 1, Data: runtime.RawExtension{Raw: []byte("{}")}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: drill.ClaimSpec()},
	} {
		if claim, is := o.(*corev1.PersistentVolumeClaim); is {
			claim.Finalizers = []string{"example.com/keep"}
			claim.Annotations[pvc.IntentAnnotation], claim.Annotations[pvc.Prefix+"mode"] = "another", "in-use"
			s.freeAtEnd(claim)
		}
		s.Create(o)
	}
	s.Lend(s.podGroupDefinition())
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(1)}}}
	group.SetGroupVersionKind(volcano.PodGroups().GroupVersionKind())
	group.SetKind("PodGroup")
	group.SetNamespace(s.Namespace)
	group.SetName("pg")
	s.Eventually("the PodGroup of another exists", func() error { return client.IgnoreAlreadyExists(s.Client.Create(s.Context(), group)) })
	for _, namespace := range []string{"kube-system", "lws-system"} {
		s.Lend(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "victim"}, Spec: pod.Spec})
		s.Lend(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "victim"},
			Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: pod}})
	}
	s.settled(s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims), uniquePerReplica))
	s.awaitBound(3) // the spec of a PVC that is not bound is immutable
}

// freeAtEnd removes the finalizers of an object when the test ends.
func (s *scene) freeAtEnd(o client.Object) {
	s.Cleanup(func() { _ = s.Client.Patch(context.Background(), o, drill.Merge(drill.NoFinalizers)) })
}

func (f *thief) core(namespace, of string) string {
	return "/api/v1/namespaces/" + namespace + "/" + of
}
func (f *thief) podGroupsPath() string {
	return "/apis/scheduling.volcano.sh/v1beta1/namespaces/" + f.Namespace + "/podgroups"
}
func (f *thief) apps(namespace, of string) string {
	return "/apis/apps/v1/namespaces/" + namespace + "/" + of
}

// each makes one attempt of each body.
func attempts(verb, path, want string, bodies ...string) (all []attempt) {
	for _, body := range bodies {
		all = append(all, attempt{verb: verb, path: path, body: body, want: want})
	}
	return all
}

func metadata(field, value string) string { return fmt.Sprintf(`{"metadata":{%q:%s}}`, field, value) }

func (f *thief) namespaces() (all []attempt) {
	for _, name := range []string{f.Namespace, "default", "kube-system", "lws-system"} {
		path := "/api/v1/namespaces/" + name
		all = append(all, attempts("patch", path, refusedByPolicy,
			metadata("labels", `{"`+podSecurity+`":"privileged"}`), metadata("labels", `{"pod-security.kubernetes.io/warn":"privileged"}`),
			metadata("labels", `{"istio-injection":"disabled"}`), metadata("labels", `{"protection.lockstep.dev/mode":"off"}`),
			metadata("annotations", `{"note":"mine"}`), metadata("annotations", `{"scheduler.alpha.kubernetes.io/node-selector":"a=b"}`),
			metadata("annotations", `{"protection.lockstep.dev/release":"u"}`),
			metadata("finalizers", `["example.com/keep"]`), metadata("ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]`))...)
		all = append(all, attempts("patch", path, admitted, metadata("annotations", `{"protection.lockstep.dev/held-claims":"1"}`))...)
		all = append(all, attempts("patch", path+"/status", refusedByRoles, "{}")...)
		all = append(all, attempts("update", path+"/finalize", refusedByRoles, "{}")...)
		all = append(all, attempts("update", path, refusedByRoles, "{}")...)
		all = append(all, attempts("delete", path, refusedByRoles, "")...)
	}
	return append(all,
		attempt{verb: "patch", path: "/api/v1/namespaces/" + f.Namespace, body: metadata("labels", `{"`+podSecurity+`":null}`), want: refusedByPolicy},
		attempt{verb: "patch", path: "/api/v1/namespaces/" + f.Namespace, body: metadata("labels", "null"), want: refusedByPolicy},
		attempt{verb: "create", path: "/api/v1/namespaces", body: `{"metadata":{"name":"mine"}}`, want: refusedByRoles})
}

func (f *thief) volumes() (all []attempt) {
	path := "/api/v1/persistentvolumes/" + f.Namespace
	all = append(all, attempts("patch", path, refusedByPolicy,
		`{"spec":{"claimRef":null}}`, `{"spec":{"claimRef":{"name":"mine"}}}`, `{"spec":{"persistentVolumeReclaimPolicy":"Recycle"}}`,
		`{"spec":{"capacity":{"storage":"2Gi"}}}`, `{"spec":{"accessModes":["ReadWriteMany"]}}`, `{"spec":{"mountOptions":["dev"]}}`, `{"spec":{"storageClassName":"other"}}`,
		metadata("labels", `{"app":"mine"}`), metadata("labels", "null"), metadata("annotations", `{"pv.kubernetes.io/bound-by-controller":"yes"}`),
		metadata("annotations", `{"protection.lockstep.dev/hold":"x"}`),
		metadata("ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]`),
		metadata("finalizers", "null"), metadata("finalizers", `["kubernetes.io/pv-protection"]`), metadata("finalizers", `["example.com/keep","example.com/more"]`))...)
	all = append(all, attempts("patch", path, admitted, metadata("finalizers", `["example.com/keep"]`),
		metadata("finalizers", `["example.com/keep","kubernetes.io/pv-protection"]`))...)
	all = append(all, attempts("update", path, refusedByRoles, "{}")...)
	all = append(all, attempts("delete", path, refusedByRoles, "")...)
	all = append(all, attempts("delete", "/api/v1/persistentvolumes", refusedByRoles, "")...)
	all = append(all, attempts("patch", path+"/status", refusedByRoles, "{}")...)
	return append(all, attempt{verb: "create", path: "/api/v1/persistentvolumes", body: `{"metadata":{"name":"mine"}}`, want: refusedByRoles})
}

func (f *thief) claims() (all []attempt) {
	person := []string{"release", "hold", "mode", "delete-when-free"}
	forged := fmt.Sprintf("[%s]", f.forged(""))
	for name, isOfSet := range map[string]bool{"data": false, "data-a-0": true} {
		path, ofSet := f.core(f.Namespace, "persistentvolumeclaims/"+name), refusedByPolicy
		if isOfSet {
			ofSet = admitted
		}
		for _, key := range person {
			all = append(all, attempts("patch", path, refusedByPolicy, metadata("annotations", `{"protection.lockstep.dev/`+key+`":"x"}`))...)
		}
		all = append(all, attempts("patch", path, refusedByPolicy,
			`{"spec":{"volumeAttributesClassName":"fast"}}`,
			metadata("labels", `{"`+lwsv1.SetNameLabelKey+`":"b"}`), metadata("labels", `{"app":"mine"}`), metadata("labels", "null"),
			metadata("annotations", `{"volume.kubernetes.io/selected-node":"mine"}`), metadata("annotations", `{"pv.kubernetes.io/bind-completed":"no"}`),
			metadata("annotations", `{"note":"theirs"}`), metadata("finalizers", `["example.com/more"]`))...)
		all = append(all, attempts("delete", path, refusedByPolicy, "")...)
		all = append(all, attempts("update", path, refusedByRoles, "{}")...)
		all = append(all, attempts("patch", path+"/status", refusedByPolicy, `{"status":{"phase":"Lost"}}`, `{"status":{"capacity":{"storage":"9Gi"}}}`,
			`{"status":{"conditions":[{"type":"Resizing","status":"True"}]}}`, metadata("labels", `{"app":"mine"}`), metadata("annotations", `{"note":"mine2"}`))...)
		all = append(all, attempts("update", path+"/status", refusedByRoles, "{}")...)
		all = append(all, attempts("patch", path, ofSet, metadata("ownerReferences", forged), metadata("annotations", `{"lockstep.dev/when-scaled":"u"}`))...)
		all = append(all, attempts("patch", path, admitted, metadata("annotations", `{"protection.lockstep.dev/holders":"pod x"}`))...)
	}
	all = append(all, attempts("patch", f.core(f.Namespace, "persistentvolumeclaims/data"), refusedByPolicy, metadata("finalizers", "null"),
		metadata("annotations", "null"), metadata("annotations", `{"protection.lockstep.dev/mode":null}`), metadata("annotations", `{"protection.lockstep.dev/delete-when-free":null}`),
		metadata("finalizers", `["kubernetes.io/pvc-protection"]`))...)
	all = append(all, attempts("patch", f.core(f.Namespace, "persistentvolumeclaims/data"), admitted,
		metadata("finalizers", `["example.com/keep"]`), metadata("finalizers", `["example.com/keep","protection.lockstep.dev/barrier"]`))...)
	return append(all, attempt{verb: "delete", path: f.core(f.Namespace, "persistentvolumeclaims"), want: refusedByRoles})
}

// forged is an ownerReference to a LeaderWorkerSet, or to an object of another kind.
func (f *thief) forged(kind string) string {
	apiVersion, name, _ := strings.Cut(kind, " ")
	if kind == "" {
		apiVersion, name = lwsv1.GroupVersion.String(), string(identity.KindLeaderWorkerSet)
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":"a","uid":%q,"controller":true}`, apiVersion, name, f.Set("a").UID)
}

func (f *thief) others() (all []attempt) {
	spec := func(image string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"serve","image":"` + image + `"}]}}}}`
	}
	label := `{"` + lwsv1.SetNameLabelKey + `":"a"}`
	for path, specs := range map[string][]string{
		f.core(f.Namespace, "pods/solo"): {`{"spec":{"schedulingGates":[]}}`, `{"spec":{"activeDeadlineSeconds":1}}`,
			otherImage, tolerating, `{"spec":{"nodeSelector":{"a":"b"}}}`},
		f.core("kube-system", "pods/victim"):           {otherImage},
		f.core("lws-system", "pods/victim"):            {otherImage},
		f.apps(f.Namespace, "statefulsets/db"):         {`{"spec":{"replicas":3}}`, spec("mine")},
		f.apps("kube-system", "statefulsets/victim"):   {`{"spec":{"replicas":3}}`, spec("mine")},
		f.apps("lws-system", "statefulsets/victim"):    {spec("mine")},
		f.apps(f.Namespace, "deployments/web"):         {`{"spec":{"replicas":3}}`, `{"spec":{"paused":true}}`, spec("mine")},
		f.core(f.Namespace, "services/web"):            {`{"spec":{"selector":{"app":"mine"}}}`, `{"spec":{"externalIPs":["203.0.113.1"]}}`, `{"spec":{"type":"NodePort"}}`},
		f.core(f.Namespace, "services/driver"):         {`{"spec":{"selector":{"app":"mine"}}}`},
		f.podGroupsPath() + "/pg":                      {`{"spec":{"minMember":2}}`},
		f.apps(f.Namespace, "controllerrevisions/rev"): {`{"revision":2}`},
	} {
		all = append(all, attempts("patch", path, refusedByPolicy, specs...)...)
		all = append(all, attempts("patch", path, refusedByPolicy, metadata("labels", label), metadata("labels", `{"app":"mine"}`), metadata("annotations", `{"note":"theirs"}`),
			metadata("finalizers", `["example.com/more"]`), metadata("ownerReferences", "["+f.forged("")+"]"),
			fmt.Sprintf(`{"metadata":{"labels":%s,"ownerReferences":[%s]}}`, label, f.forged("")))...)
		deletion := refusedByPolicy
		if strings.Contains(path, "/deployments/") {
			deletion = refusedByRoles
		}
		all = append(all, attempts("delete", path, deletion, "", `{"propagationPolicy":"Orphan"}`)...)
		all = append(all, attempts("update", path, refusedByRoles, "{}")...)
		all = append(all, attempts("delete", path[:strings.LastIndex(path, "/")], refusedByRoles, "")...)
	}
	return all
}

func (f *thief) podsOfSet() (all []attempt) {
	for _, name := range []string{"a-0", "a-0-1"} {
		path := f.core(f.Namespace, "pods/"+name)
		all = append(all, attempts("patch", path, refusedByPolicy,
			otherImage, `{"spec":{"activeDeadlineSeconds":1}}`,
			metadata("labels", `{"`+lwsv1.SetNameLabelKey+`":"b"}`), metadata("labels", `{"app":"web"}`), metadata("finalizers", `["example.com/more"]`),
			metadata("ownerReferences", "null"))...)
		all = append(all, attempts("patch", path+"/status", refusedByPolicy, `{"status":{"phase":"Failed"}}`, `{"status":{"podIP":"203.0.113.1"}}`,
			`{"status":{"conditions":[]}}`, metadata("labels", `{"app":"web"}`), metadata("annotations", `{"note":"x"}`))...)
		for _, sub := range []string{"exec", "attach", "portforward", "eviction", "binding"} {
			all = append(all, attempts("create", path+"/"+sub, refusedByRoles, "{}")...)
		}
		for _, sub := range []string{"ephemeralcontainers", "resize"} {
			all = append(all, attempts("patch", path+"/"+sub, refusedByRoles, "{}")...)
		}
		all = append(all, attempts("get", path+"/log", refusedByRoles, "")...)
		all = append(all, attempts("patch", path, admitted, metadata("annotations", `{"lockstep.dev/restart":"x"}`))...)
	}
	solo := f.core(f.Namespace, "pods/solo/status")
	return append(all, attempts("patch", solo, refusedByPolicy, `{"status":{"podIP":"203.0.113.1"}}`, `{"status":{"phase":"Failed"}}`,
		`{"status":{"conditions":[{"type":"`+string(lwsv1.GroupReadyCondition)+`","status":"True"}]}}`, metadata("labels", `{"app":"mine"}`))...)
}

// object is a new object of a collection, with labels and owners in JSON.
func object(collection, labels, owners, pod string) string {
	about := fmt.Sprintf(`"metadata":{"name":"a-7","labels":%s,"annotations":{%q:"1"},"ownerReferences":[%s]}`, labels, lwsv1.SizeAnnotationKey, owners)
	workload := fmt.Sprintf(`{%s,"spec":{"replicas":1,"serviceName":"a","selector":{"matchLabels":{"x":"y"}},"template":{"metadata":{"labels":{"x":"y"}},"spec":%s}}}`, about, pod)
	switch collection[strings.LastIndex(collection, "/")+1:] {
	case "statefulsets", "deployments":
		return workload
	case "pods":
		return fmt.Sprintf(`{%s,"spec":%s}`, about, pod)
	case "services":
		return fmt.Sprintf(`{%s,"spec":{"clusterIP":"None","selector":{"x":"y"}}}`, about)
	case "podgroups":
		return fmt.Sprintf(`{"apiVersion":"scheduling.volcano.sh/v1beta1","kind":"PodGroup",%s,"spec":{"minMember":1}}`, about)
	case "controllerrevisions":
		return fmt.Sprintf(`{%s,"revision":1,"data":{}}`, about)
	}
	return fmt.Sprintf(`{%s,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, about)
}

const (
	plain      = `{"containers":[{"name":"c","image":"i"}]}`
	privileged = `{"hostNetwork":true,"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`
	ofSetA     = `{"` + lwsv1.SetNameLabelKey + `":"a","` + lwsv1.WorkerIndexLabelKey + `":"0"}`
)

func (f *thief) creations() (all []attempt) {
	workloads := []string{f.apps(f.Namespace, "statefulsets"), f.apps(f.Namespace, "deployments"), f.core(f.Namespace, "services"), f.apps(f.Namespace, "controllerrevisions"), f.podGroupsPath()}
	pods, claims := f.core(f.Namespace, "pods"), f.core(f.Namespace, "persistentvolumeclaims")
	foreign := []string{"apps/v1 Deployment", "apps/v1 DaemonSet", "batch/v1 Job", "v1 Node", "example.com/v1 LeaderWorkerSet"}
	for _, path := range []string{pods, claims} {
		for _, kind := range append(foreign, "", "apps/v1 StatefulSet", "apps/v1 ReplicaSet") {
			all = append(all, attempts("create", path, refusedByRoles, object(path, ofSetA, f.forged(kind), plain), object(path, "{}", f.forged(kind), privileged))...)
		}
	}
	for _, path := range workloads {
		all = append(all, attempts("create", path, refusedByPolicy, object(path, "{}", "", plain), object(path, "{}", f.forged(""), plain),
			object(path, ofSetA, "", plain),
			object(path, ofSetA, strings.Replace(f.forged(""), "true", "false", 1), plain))...)
		for _, kind := range foreign {
			all = append(all, attempts("create", path, refusedByPolicy, object(path, ofSetA, f.forged(kind), plain))...)
		}
	}
	service := strings.Replace(object(workloads[2], ofSetA, f.forged(""), ""), `"clusterIP":"None"`, "%s", 1)
	for _, address := range []string{`"ports":[{"port":80}]`, `"ports":[{"port":80}],"externalIPs":["203.0.113.1"]`, `"type":"LoadBalancer","ports":[{"port":80}]`,
		`"type":"ExternalName","externalName":"example.com"`} {
		all = append(all, attempts("create", workloads[2], refusedByPolicy, fmt.Sprintf(service, address))...)
	}
	return all
}

// systemNamespaces has objects that look like those of a set in namespaces of the cluster.
func (f *thief) systemNamespaces() (all []attempt) {
	for _, namespace := range []string{"kube-system", "kube-public", "kube-node-lease", "lws-system"} {
		for _, pod := range []string{plain, privileged} {
			pods, sets, deployments := f.core(namespace, "pods"), f.apps(namespace, "statefulsets"), f.apps(namespace, "deployments")
			all = append(all, attempts("create", pods, refusedByRoles, object(pods, ofSetA, f.forged("apps/v1 StatefulSet"), pod))...)
			all = append(all, attempts("create", sets, refusedByPolicy, object(sets, ofSetA, f.forged(""), pod), object(sets, ofSetA, f.forged("v1 Pod"), pod))...)
			all = append(all, attempts("create", deployments, refusedByPolicy, object(deployments, ofSetA, f.forged(""), pod))...)
		}
	}
	return all
}

// unbounded is what a client with the token can do, because the operator does the same.
func (f *thief) unbounded() (all []attempt) {
	sets := f.apps(f.Namespace, "statefulsets")
	services, revisions, deployments := f.core(f.Namespace, "services"), f.apps(f.Namespace, "controllerrevisions"), f.apps(f.Namespace, "deployments")
	return append(all,
		attempt{verb: "create", path: sets, body: object(sets, ofSetA, f.forged(""), privileged), want: admitted},
		attempt{verb: "create", path: deployments, body: object(deployments, ofSetA, f.forged(""), privileged), want: admitted},
		attempt{verb: "create", path: services, body: object(services, ofSetA, f.forged(""), ""), want: admitted},
		attempt{verb: "create", path: revisions, body: object(revisions, ofSetA, f.forged(""), ""), want: admitted},
		attempt{verb: "patch", path: sets + "/a", body: `{"spec":{"replicas":0}}`, want: admitted},
		attempt{verb: "delete", path: sets + "/a", want: admitted},
		attempt{verb: "delete", path: f.core(f.Namespace, "pods/a-0"), want: admitted},
		attempt{verb: "patch", path: "/apis/" + lwsv1.GroupVersion.String() + "/namespaces/" + f.Namespace + "/leaderworkersets/a/status", body: `{"status":{"replicas":9}}`, want: admitted},
		attempt{verb: "create", path: "/apis/coordination.k8s.io/v1/namespaces/lws-system/leases", body: `{"metadata":{"name":"mine"}}`, want: admitted},
		attempt{verb: "create", path: "/apis/events.k8s.io/v1/namespaces/kube-system/events", want: admitted,
			body: `{"metadata":{"name":"mine","namespace":"kube-system"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"a.example/b","reportingInstance":"c","action":"d","reason":"e","type":"Normal","regarding":{"kind":"Pod","namespace":"kube-system","name":"p"}}`},
		attempt{verb: "get", path: "/api/v1/pods", want: admitted},
	)
}

// roles is what no role grants, whatever a policy says.
func (f *thief) roles() (all []attempt) {
	for _, who := range []string{"system:admin", "system:kube-scheduler", "system:serviceaccount:kube-system:generic-garbage-collector", "system:node:node-0"} {
		all = append(all, attempt{verb: "get", path: "/api/v1/nodes/x", as: who, want: refusedByRoles})
	}
	for _, namespace := range []string{f.Namespace, "kube-system", "lws-system"} {
		for _, account := range []string{"default", "lws-controller-manager"} {
			all = append(all, attempt{verb: "create", path: f.core(namespace, "serviceaccounts/"+account+"/token"), body: "{}", want: refusedByRoles})
		}
		all = append(all, attempt{verb: "get", path: f.core(namespace, "secrets"), want: refusedByRoles},
			attempt{verb: "get", path: f.core(namespace, "configmaps"), want: refusedByRoles})
	}
	for _, path := range []string{"/metrics", "/logs", "/debug/pprof/", "/api/v1/secrets", "/api/v1/nodes", "/api/v1/nodes/x/proxy/", "/apis/rbac.authorization.k8s.io/v1/clusterroles"} {
		all = append(all, attempt{verb: "get", path: path, want: refusedByRoles})
	}
	return all
}

// certificates is what would let a client read all new objects of the cluster: the operator reads webhooks and the certificate of its own.
func (f *thief) certificates() (all []attempt) {
	secrets := f.core("lws-system", "secrets")
	for _, name := range []string{"lws-webhook-server-cert", "lws-webhook-authority", "another"} {
		for _, verb := range []string{"update", "patch", "delete"} {
			all = append(all, attempt{verb: verb, path: secrets + "/" + name, body: "{}", want: refusedByRoles})
		}
	}
	all = append(all, attempts("create", secrets, refusedByRoles, `{"metadata":{"name":"mine"}}`)...)
	const hooks = `{"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://203.0.113.1"},"sideEffects":"None","admissionReviewVersions":["v1"]}]}`
	for kind, name := range map[string]string{
		"mutatingwebhookconfigurations": "lws-mutating-webhook-configuration", "validatingwebhookconfigurations": "lws-validating-webhook-configuration",
		"validatingadmissionpolicies": "lws-operator-pods", "validatingadmissionpolicybindings": "lws-operator-pods", "mutatingadmissionpolicies": "gate.protection.lockstep.dev",
	} {
		path := "/apis/admissionregistration.k8s.io/v1/" + kind
		for _, verb := range []string{"update", "patch", "delete"} {
			all = append(all, attempt{verb: verb, path: path + "/" + name, body: hooks, want: refusedByRoles})
		}
		all = append(all, attempts("create", path, refusedByRoles, hooks)...)
	}
	return all
}

// granted are the writes that the roles grant, or Kubernetes grants every user. Each has bounds in the drill above, or concerns nothing of
// others: "what cannot be told from the operator" names them.
var granted = map[string]string{
	"namespaces": "patch", "persistentvolumes": "patch", "persistentvolumeclaims": "patch delete",
	"pods": "patch delete", "pods/status": "patch", "services": "create patch delete",
	"statefulsets.apps": "create patch delete", "controllerrevisions.apps": "create patch delete", "deployments.apps": "create patch",
	"leaderworkersets.leaderworkerset.x-k8s.io/status": "patch update", "events.events.k8s.io": "create patch",
	"tokenreviews.authentication.k8s.io": "create", "subjectaccessreviews.authorization.k8s.io": "create",
	"selfsubjectreviews.authentication.k8s.io": "create", "selfsubjectaccessreviews.authorization.k8s.io": "create", "selfsubjectrulesreviews.authorization.k8s.io": "create",
	"podgroups.scheduling.k8s.io": "create patch delete", "workloads.scheduling.k8s.io": "create patch",
	"podgroups.scheduling.volcano.sh": "create patch delete",
}

// TestTheOperatorsTokenWritesNoOtherKind sends each write of each kind that the API server serves.
func TestTheOperatorsTokenWritesNoOtherKind(t *testing.T) {
	s := newScene(t)
	f := newThief(s)
	server, err := discovery.NewDiscoveryClientForConfig(bed.Rest)
	s.Check("make a client of discovery", err)
	_, lists, err := server.ServerGroupsAndResources()
	s.Check("discover", err)
	for _, list := range lists {
		for _, kind := range list.APIResources {
			f.tryKind(t, list.GroupVersion, &kind)
		}
	}
	if f.sent < leastRequests {
		t.Errorf("only %d requests were sent", f.sent)
	}
	t.Logf("%d requests were sent", f.sent)
}

func (f *thief) tryKind(t *testing.T, version string, kind *metav1.APIResource) {
	group, _, hasGroup := strings.Cut(version, "/")
	path := "/api/" + version
	if hasGroup {
		path = "/apis/" + version
	} else {
		group = ""
	}
	if kind.Namespaced {
		path += "/namespaces/" + f.Namespace
	}
	resource, subresource, isSub := strings.Cut(kind.Name, "/")
	title := strings.TrimSuffix(resource+"."+group, ".")
	if isSub {
		title += "/" + subresource
	}
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		if !slices.Contains(kind.Verbs, verb) {
			continue
		}
		a := attempt{verb: strings.TrimSuffix(verb, "collection"), path: path + "/" + resource, body: "{}", want: refusedByRoles}
		if verb != "create" && verb != "deletecollection" || isSub {
			a.path += "/nothing"
		}
		if isSub {
			a.path += "/" + subresource
		}
		a.path += "?dryRun=All"
		isGranted := slices.Contains(strings.Fields(granted[title]), verb)
		if got := f.try(a); (got != refusedByRoles) != isGranted {
			t.Errorf("%s %s: got %s, granted %v", verb, title, got, isGranted)
		}
	}
}

// TestSetsHaveNoPodsInNamespacesOfTheCluster creates sets where a forged pod would be most dangerous, and where an administrator binds the
// policy too. Each set says why it has no pods.
func TestSetsHaveNoPodsInNamespacesOfTheCluster(t *testing.T) {
	s := newScene(t)
	s.MayWrite("kube-system")
	s.Lend(&admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-sets." + s.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "lws-operator-system", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}},
		},
	})
	f := newThief(s)
	sets := f.apps(s.Namespace, "statefulsets")
	s.Eventually("the binding is enforced", func() error {
		return drill.Lacking("answer", refusedByPolicy, f.try(attempt{want: admitted, verb: "create", path: sets,
			body: object(sets, ofSetA, `{"apiVersion":"`+lwsv1.GroupVersion.String()+`","kind":"LeaderWorkerSet","name":"a","uid":"u","controller":true}`, plain)}))
	})
	byKey := func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }
	for _, set := range []*lwsv1.LeaderWorkerSet{
		newSet("kube-system", "refused", 1, 2, imageA), newSet("kube-system", "refused-by-key", 1, 2, imageA, byKey), s.newSet("refused", 1, 2, imageA),
	} {
		s.Lend(set)
		s.Eventually("the set says why it has no pods", func() error {
			now := &lwsv1.LeaderWorkerSet{}
			if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(set), now); err != nil {
				return err
			}
			text, err := json.Marshal(now.Status.Conditions)
			if err == nil && !strings.Contains(string(text), "create the set in another namespace") {
				err = fmt.Errorf("the conditions are %s", text)
			}
			return err
		})
		pods := &corev1.PodList{}
		s.Check("list the pods", s.Client.List(s.Context(), pods, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name}))
		if len(pods.Items) > 0 {
			t.Errorf("the set has %d pods", len(pods.Items))
		}
	}
}
