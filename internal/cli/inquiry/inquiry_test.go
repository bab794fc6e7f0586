package inquiry_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

const ns = "prod"

// cluster answers as a cluster does that keeps some of what it has to itself.
type cluster struct {
	client.Client
	forbidden, absent []string
	pods              int            // lists of pods
	gets              map[string]int // by type
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	return &cluster{
		Client: fake.NewClientBuilder().WithScheme(lws.Scheme()).WithRESTMapper(inquiry.Mapper()).WithObjects(objects...).Build(),
		gets:   map[string]int{},
	}
}

// answer is the error for what is kept back, by the name of its type.
func (c *cluster) answer(object any) error {
	kind := reflect.TypeOf(object).Elem().Name()
	switch {
	case slices.Contains(c.forbidden, kind):
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
	case slices.Contains(c.absent, kind):
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, "")
	}
	return nil
}

func (c *cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	c.gets[reflect.TypeOf(into).Elem().Name()]++
	if err := c.answer(into); err != nil {
		return err
	}
	return c.Client.Get(ctx, key, into, options...)
}

func (c *cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isPods := list.(*corev1.PodList); isPods {
		c.pods++
	}
	if err := c.answer(list); err != nil {
		return err
	}
	return c.Client.List(ctx, list, options...)
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), Finalizers: []string{pvc.PodsFinalizer}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	}
}

func bound(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
	}
}

func space(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}}
}

func explain(t *testing.T, c *cluster, claims ...*corev1.PersistentVolumeClaim) []pvc.Explanation {
	t.Helper()
	return explainBy(t, c, claims...)
}

func explainBy(t *testing.T, c client.Reader, claims ...*corev1.PersistentVolumeClaim) []pvc.Explanation {
	t.Helper()
	var read []corev1.PersistentVolumeClaim
	for _, claim := range claims {
		read = append(read, *claim)
	}
	found, err := inquiry.New(c).Explain(t.Context(), ns, read)
	if err != nil {
		t.Fatal(err)
	}
	var all []pvc.Explanation
	for _, f := range found {
		all = append(all, pvc.Why(f.Case))
	}
	return all
}

func TestAnUnreadKindIsNotAbsent(t *testing.T) {
	data := claim("data")
	c := newCluster(t, data, space(nil))
	if e := explain(t, c, data)[0]; e.State != pvc.Free || len(e.Unread) > 0 {
		t.Fatalf("all may be read, and it is %s: %+v", e.State, e.Unread)
	}
	for _, kind := range []string{"PodList", "StatefulSetList"} {
		c.forbidden = []string{kind}
		e := explain(t, c, data)[0]
		if e.State != pvc.Unknown || len(e.Unread) != 1 || !e.Unread[0].MayHold || e.Unread[0].Why != "you may not read it" {
			t.Errorf("%s may not be read, and the claim is %s: %+v", kind, e.State, e.Unread)
		}
	}
	c.forbidden = []string{"PersistentVolume", "PartialObjectMetadata"}
	e := explain(t, c, data)[0]
	if e.State != pvc.Free || len(e.Unread) != 2 || e.Then[0] != "volume pv-data was not read: what becomes of the data is unknown" {
		t.Errorf("what cannot hold may not be read, and the claim is %s: %+v", e.State, e)
	}
}

func TestAnUnservedKindHoldsNothing(t *testing.T) {
	data := claim("data")
	c := newCluster(t, data, space(nil))
	c.absent = []string{"StatefulSetList"}
	if e := explain(t, c, data)[0]; e.State != pvc.Free || len(e.Unread) > 0 {
		t.Errorf("got %s, %+v", e.State, e.Unread)
	}
}

func TestModeWithoutConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		edit   func(*corev1.PersistentVolumeClaim)
		mode   pvc.Mode
		from   string
	}{
		{"nothing", nil, func(*corev1.PersistentVolumeClaim) {}, pvc.Off, "the annotations and finalizers of the PVC"},
		{"the barrier", nil, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{pvc.BarrierFinalizer} }, pvc.Barrier, "the annotations and finalizers of the PVC"},
		{"words", nil, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{pvc.HoldersAnnotation: "a"}
		}, pvc.Hold, "the annotations and finalizers of the PVC"},
		{"the namespace", map[string]string{pvc.ModeKey: "hold"}, func(*corev1.PersistentVolumeClaim) {}, pvc.Hold, "label of the namespace"},
		{"the claim", map[string]string{pvc.ModeKey: "hold"}, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{pvc.ModeKey: "off"}
		}, pvc.Off, "annotation of the PVC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := claim("data")
			tt.edit(data)
			found, err := inquiry.New(newCluster(t, data, space(tt.labels))).Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*data})
			if err != nil {
				t.Fatal(err)
			}
			if found[0].Mode != tt.mode || found[0].ModeFrom != tt.from {
				t.Errorf("got %s, %q", found[0].Mode, found[0].ModeFrom)
			}
		})
	}
}

func TestModeOfTheConfiguration(t *testing.T) {
	podOwns := func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "da", UID: "u", Controller: new(true)}}
		c.Name = "da-ta"
	}
	held := map[string]string{pvc.ModeKey: "hold"}
	for _, tt := range []struct {
		name, config string
		labels       map[string]string
		edit         func(*corev1.PersistentVolumeClaim)
		mode         pvc.Mode
		from         string
	}{
		{"the default", "", nil, nil, pvc.Barrier, "configuration"},
		{"hold", "mode: Hold", nil, nil, pvc.Hold, "configuration"},
		{"the namespace", "mode: \"Off\"", held, nil, pvc.Hold, "label of the namespace"},
		{"exempt", "exemptNamespaces: [other, " + ns + "]", held, nil, pvc.Off, "exempt namespace"},
		{"of a pod", "", held, podOwns, pvc.Off, "ephemeral volume of a pod"},
		{"of a pod, and nobody chose", "", nil, podOwns, pvc.Off, "ephemeral volume of a pod"},
		{"no mode", "mode: Lazy", nil, nil, pvc.Off, "the annotations and finalizers of the PVC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := claim("data")
			if tt.edit != nil {
				tt.edit(data)
			}
			config := &corev1.ConfigMap{Data: map[string]string{v1alpha1.InstalledKey: "protection: {" + tt.config + "}"}}
			config.Namespace, config.Name = v1alpha1.InstalledNamespace, v1alpha1.InstalledName
			found, err := inquiry.New(newCluster(t, data, space(tt.labels), config)).Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*data})
			if err != nil {
				t.Fatal(err)
			}
			if found[0].Mode != tt.mode || found[0].ModeFrom != tt.from {
				t.Errorf("got %s, %q", found[0].Mode, found[0].ModeFrom)
			}
		})
	}
}

func TestAnOverviewReadsLittle(t *testing.T) {
	held := map[string]string{pvc.HoldersAnnotation: "a"}
	var objects []client.Object
	var claims []corev1.PersistentVolumeClaim
	for _, name := range []string{"a", "b", "c"} {
		c := claim(name)
		c.Annotations = held
		objects, claims = append(objects, c, bound("pod-"+name, name)), append(claims, *c)
	}
	c := newCluster(t, append(objects, space(nil))...)
	i := inquiry.New(c)
	i.Brief = true
	if _, err := i.Explain(t.Context(), ns, claims); err != nil {
		t.Fatal(err)
	}
	if c.gets["PersistentVolume"]+c.gets["Node"] > 0 || c.pods != 1 {
		t.Errorf("read %v, and pods %d times", c.gets, c.pods)
	}
	i.Brief = false
	if _, err := i.Explain(t.Context(), ns, claims); err != nil {
		t.Fatal(err)
	}
	if c.gets["PersistentVolume"] != 3 || c.gets["Node"] != 1 {
		t.Errorf("in full: read %v", c.gets)
	}
}
