package pvc

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const ns = "prod"

// api is a fake API server that refuses to read some kinds, and records reads.
type api struct {
	forbidden []string
	reads     map[string]int
}

func (a *api) client(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	a.reads = map[string]int{}
	scheme, mapper := clilws.Scheme(), meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "example.com", Version: "v2"}, {Group: workloads.JobSet.Group, Version: "v2"}})
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, o := range objects { // of kinds that are served
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() != "LeaderWorkerSet" {
			scope := meta.RESTScope(meta.RESTScopeNamespace)
			if u.GetNamespace() == "" {
				scope = meta.RESTScopeRoot
			}
			mapper.Add(u.GroupVersionKind(), scope)
		}
	}
	answer := func(object interface{ GetObjectKind() schema.ObjectKind }) error {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		if typed, err := apiutil.GVKForObject(object.(client.Object), scheme); kind == "" && err == nil {
			kind = typed.Kind
		}
		return a.read(kind)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if err := answer(into); err != nil {
				return err
			}
			return c.Get(ctx, key, into, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			kind, err := apiutil.GVKForObject(list, scheme)
			if err != nil {
				kind = list.GetObjectKind().GroupVersionKind()
			}
			if err := a.read(kind.Kind); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
}

func (a *api) read(kind string) error {
	a.reads[kind]++
	if slices.Contains(a.forbidden, kind) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
	}
	return nil
}

func claim(name string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	}
	return fakeapi.Edited(c, edits...)
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
}

func space(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}}
}

func configured(text string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{Data: map[string]string{v1alpha1.InstalledKey: "protection: {" + text + "}"}}
	c.Namespace, c.Name = v1alpha1.InstalledNamespace, v1alpha1.InstalledName
	return c
}

// workload is an object of any kind that wants the PVC data-a.
func workload(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": ns, "name": "a", "uid": "w"}, "spec": spec,
	}}
}

// A kind that the user may not read is unread; one that the API server does not serve has no objects.
func TestHoldersAndUnreadKinds(t *testing.T) {
	template := []any{map[string]any{"metadata": map[string]any{"name": "data"}}}
	shard := workload("example.com/v2", "Shard", map[string]any{"claims": template})
	jobSet := workload("jobset.x-k8s.io/v2", "JobSet", map[string]any{"volumeClaimPolicies": []any{map[string]any{"templates": template}}})
	set := workload(lwsv1.GroupVersion.String(), "LeaderWorkerSet", map[string]any{"replicas": int64(1), "leaderWorkerTemplate": map[string]any{
		"size": int64(1), "volumeClaimTemplates": template,
	}})
	shards := configured("kinds: [{apiVersion: example.com/v1, kind: Shard, claimTemplates: [spec.claims], claimName: '{template}-{name}'}]")
	barred := claim("data-a", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{pvc.BarrierFinalizer} })
	elsewhere := shards.DeepCopy()
	elsewhere.Namespace = "elsewhere"
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "lockstep-protection-rolebinding"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "elsewhere", "name": "lws-controller-manager"}},
	}}
	for _, tt := range []struct {
		name      string
		objects   []client.Object
		forbidden []string
		claim     *corev1.PersistentVolumeClaim
		state     pvc.State
		unread    string // with "+" those that may hold
	}{
		{name: "nothing", state: pvc.Free},
		{name: "pods", forbidden: []string{"PodList"}, state: pvc.Unknown, unread: "+pods"},
		{name: "StatefulSets", forbidden: []string{"StatefulSetList"}, state: pvc.Unknown, unread: "+statefulsets"},
		{name: "volume and namespace", forbidden: []string{"PersistentVolume", "Namespace"}, state: pvc.Free, unread: "namespace persistentvolume"},
		{name: "a set", objects: []client.Object{set}, claim: claim("data-a-0"), state: pvc.Held},
		{name: "a kind of no configuration", objects: []client.Object{shard}, state: pvc.Free},
		{name: "a kind of the configuration, in another version", objects: []client.Object{shard, shards}, state: pvc.Held},
		{name: "a kind of the configuration in another namespace", objects: []client.Object{shard, elsewhere, binding}, state: pvc.Held},
		{name: "the namespace of the configuration, with the barrier", forbidden: []string{"ClusterRoleBinding"}, state: pvc.Free, unread: "kinds", claim: barred},
		{name: "a kind that is not served", objects: []client.Object{shards}, state: pvc.Free},
		{name: "a kind of the configuration", objects: []client.Object{shard, shards}, forbidden: []string{"ShardList"}, state: pvc.Unknown, unread: "+shards.example.com"},
		{name: "JobSet in another version", objects: []client.Object{jobSet}, state: pvc.Held},
		{name: "the configuration", forbidden: []string{"ConfigMap"}, state: pvc.Free},
		{name: "the configuration, with the barrier", forbidden: []string{"ConfigMap"}, state: pvc.Free, unread: "kinds",
			claim: barred},
	} {
		c := claim("data-a")
		if tt.claim != nil {
			c = tt.claim
		}
		a := &api{forbidden: tt.forbidden}
		found := expect.Value((&Reader{Client: a.client(t, append(tt.objects, space(nil))...)}).Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*c}))(t)
		e := pvc.Why(found[0].Case)
		var unread []string
		for _, u := range e.Unread {
			what, _, _ := strings.Cut(u.What, " ")
			unread = append(unread, map[bool]string{true: "+", false: ""}[u.MayHold]+what)
		}
		expect.Equalf(t, tt.state, e.State, "%s", tt.name)
		expect.Equalf(t, tt.unread, strings.Join(unread, " "), "%s: unread %+v", tt.name, e.Unread)
	}
}

func TestModes(t *testing.T) {
	podOwns := func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "da", UID: "u", Controller: new(true)}}
		c.Name = "da-ta"
	}
	barrier := func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{pvc.BarrierFinalizer} }
	as := func(*corev1.PersistentVolumeClaim) {}
	hold := map[string]string{pvc.ModeKey: "hold"}
	for _, tt := range []struct {
		name   string
		config *corev1.ConfigMap
		labels map[string]string
		edit   func(*corev1.PersistentVolumeClaim)
		mode   pvc.Mode
		from   string // a part of it
	}{
		{"nothing", nil, nil, as, pvc.Off, "finalizers"},
		{"the barrier", nil, nil, barrier, pvc.Barrier, "finalizers"},
		{"a hold", nil, nil, annotated(pvc.HoldersAnnotation, "a"), pvc.Hold, "finalizers"},
		{"observed", nil, nil, annotated(pvc.ObservedAnnotation, "a"), pvc.Observe, "finalizers"},
		{"the namespace", nil, hold, as, pvc.Hold, "namespace"},
		{"the PVC", nil, hold, annotated(pvc.ModeKey, "off"), pvc.Off, "annotation of the PVC"},
		{"the default", configured(""), nil, as, pvc.Barrier, "configuration"},
		{"hold", configured("mode: Hold"), nil, as, pvc.Hold, "configuration"},
		{"the namespace, configured", configured("mode: \"Off\""), hold, as, pvc.Hold, "namespace"},
		{"exempt", configured("exemptNamespaces: [other, " + ns + "]"), hold, as, pvc.Off, "exempt"},
		{"ephemeral", configured(""), hold, podOwns, pvc.Off, "ephemeral"},
		{"ephemeral by default", configured(""), nil, podOwns, pvc.Off, "ephemeral"},
	} {
		objects := []client.Object{space(tt.labels)}
		if tt.config != nil {
			objects = append(objects, tt.config)
		}
		found := expect.Value((&Reader{Client: (&api{}).client(t, objects...)}).Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*claim("data", tt.edit)}))(t)
		expect.That(t, found[0].Mode == tt.mode && strings.Contains(found[0].ModeFrom, tt.from),
			"%s: got %s, %q", tt.name, found[0].Mode, found[0].ModeFrom)
	}
}

func TestObjectsAreReadOnce(t *testing.T) {
	var claims []corev1.PersistentVolumeClaim
	objects := []client.Object{space(nil)}
	for _, name := range []string{"a", "b", "c"} {
		claims = append(claims, *claim(name))
		objects = append(objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("pod-" + name)},
			Spec:       corev1.PodSpec{NodeName: "n1", Volumes: fakeapi.Using(name)},
		})
	}
	for _, brief := range []bool{true, false} {
		a := &api{}
		r := &Reader{Client: a.client(t, objects...), Brief: brief}
		for range 2 {
			expect.Value(r.Explain(t.Context(), ns, claims))(t)
		}
		volumes, nodes := 6, 2
		if brief {
			volumes, nodes = 0, 0
		}
		if a.reads["PersistentVolume"] != volumes || a.reads["Node"] != nodes || a.reads["PodList"] != 2 || a.reads["ConfigMap"] != 2 {
			t.Errorf("brief %t: read %v", brief, a.reads)
		}
	}
}

func held(by string) func(*corev1.PersistentVolumeClaim) {
	return annotated(pvc.HoldersAnnotation, by)
}

func TestHeldObjects(t *testing.T) {
	leaving := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	namespace := func(held string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{pvc.HeldClaimsAnnotation: held}}}
	}
	ending := namespace("2")
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tt := range map[string]struct {
		object client.Object
		want   bool
	}{
		"free":                                 {claim("a"), false},
		"held":                                 {claim("a", held("b")), true},
		"terminating":                          {claim("a", leaving), false},
		"terminating and held":                 {claim("a", leaving, held("b")), true},
		"a namespace":                          {namespace(""), false},
		"a namespace that counts no held PVCs": {namespace("0"), false},
		"a namespace with held PVCs":           {namespace("2"), true},
		"a terminating namespace":              {ending, false},
	} {
		expect.Equalf(t, tt.want, Held(tt.object), "%s", name)
	}
}

// A release is of the incarnation and the holders that were shown.
func TestRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*corev1.PersistentVolumeClaim)
		released  bool
	}{
		"unchanged":      {nil, true},
		"another holder": {held("c"), false},
	} {
		c, shown, now := (&api{}).client(t, claim("a", held("b"))), claim("a"), claim("a")
		for _, o := range []*corev1.PersistentVolumeClaim{shown, now} {
			expect.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		}
		if tt.meanwhile != nil {
			tt.meanwhile(now)
			expect.OK(t, c.Update(t.Context(), now))
		}
		err := Release(t.Context(), c, shown)
		expect.That(t, tt.released == (err == nil) && (err == nil || apierrors.IsConflict(err)), "%s: got %v", name, err)
		expect.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(shown), now))
		expect.Equalf(t, tt.released, now.Annotations[pvc.ReleaseAnnotation] == "uid-a", "%s: the token is given", name)
	}
}
