package unused

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"lockstep.dev/lockstep/internal/pvccache"
)

// heard is what was added to a queue, and for when.
type heard struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	all []string
}

func (h *heard) AddAfter(r ctrl.Request, in time.Duration) {
	h.all = append(h.all, r.Name+" "+in.String())
}

func using(name, version string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", ResourceVersion: version}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// A pod costs a look when it begins to count and one when it ceases to, however
// often it changes in between.
func TestAPodIsHeardOfWhenItComesAndWhenItEnds(t *testing.T) {
	pods, q := pvccache.NewPods(), &heard{}
	going := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "going", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"f"},
	}}
	claims := pvccache.NewClaims(fake.NewClientBuilder().WithObjects(going).Build(), nil)
	if err := (&podEvents{pods: pods, claims: claims}).Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	running, over, gone := using("a", "2", "data"), using("a", "3", "data"), using("a", "4", "data")
	running.Spec.NodeName, running.Status.Phase = "n1", corev1.PodRunning
	over.Status.Phase = corev1.PodSucceeded
	for _, step := range []struct {
		do   func(any) error
		pod  *corev1.Pod
		want []string
	}{
		{pods.Sink().Add, using("a", "1", "data"), []string{"data 0s"}},
		{pods.Sink().Update, running, nil},
		{pods.Sink().Update, over, []string{"data 5s"}},
		{pods.Sink().Delete, gone, nil},
		{pods.Sink().Add, using("b", "5", "data", "logs"), []string{"data 0s", "logs 0s"}},
		{pods.Sink().Delete, using("b", "6"), []string{"data 5s", "logs 5s"}},
		{pods.Sink().Add, using("c", "7", "data", "going"), []string{"data 0s", "going 0s"}},
		{pods.Sink().Delete, using("c", "8"), []string{"data 5s"}},
	} {
		q.all = nil
		if err := step.do(step.pod); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(q.all, step.want) {
			t.Errorf("%s@%s: heard %q, want %q", step.pod.Name, step.pod.ResourceVersion, q.all, step.want)
		}
	}
}

func TestAClaimIsHeardOfForWhatTheConditionDependsOn(t *testing.T) {
	said := []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue}}
	for name, tt := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want bool
	}{
		"a new version":    {func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = "8" }, false},
		"words of ours":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{"a": "b"} }, false},
		"another life":     {func(c *corev1.PersistentVolumeClaim) { c.UID = "v" }, true},
		"bound":            {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, true},
		"dressed":          {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"f"} }, true},
		"somebody said it": {func(c *corev1.PersistentVolumeClaim) { c.Status.Conditions = said }, true},
	} {
		was := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}}
		is := was.DeepCopy()
		if tt.edit(is); concerns(was, is) != tt.want {
			t.Errorf("%s: heard %t", name, !tt.want)
		}
	}
}
