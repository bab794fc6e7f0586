package pvcfinalizer

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// traced is a world with a node, and a volume that claim c is bound to.
func traced(t *testing.T, settings pvc.Settings, objects ...client.Object) *world {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "h"}
	w := newWorld(t, settings, append(objects, node, volume)...)
	w.tracer = pvccache.NewTracer(w.WithWatch)
	return w
}

func attachment() *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	a.Spec.NodeName, a.Spec.Source.PersistentVolumeName = "n", new("pv")
	return a
}

func choosing(c *corev1.PersistentVolumeClaim, key, word string) *corev1.PersistentVolumeClaim {
	c.Annotations, c.Spec.VolumeName = map[string]string{key: word}, "pv"
	return c
}

func completed(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	return pod
}

// after has the clock go on, and what it wakes done.
func (w *world) after(d time.Duration) {
	w.clock.Step(d)
	w.drain()
}

func TestACompletedPodLetsGoWhereThatIsChosen(t *testing.T) {
	c := deleted(choosing(claim("c", p, b), pvc.CompletedKey, "free"))
	w := traced(t, alone, c, completed(user("job", "c")), attachment())
	w.pass("c")
	w.want("c", p, b)
	if told := w.events(); !strings.Contains(told, "DeletionPostponed") || !strings.Contains(told, "pod job on node n lets go, 30s after it completed") {
		t.Errorf("told %q", told)
	}
	w.after(pvc.CompletedGrace)
	w.want("c", p, b) // its volume is attached
	if n := w.heldFor("CompletedPods"); n != 1 {
		t.Errorf("%d are held by completed pods", n)
	}
	w.remove(attachment())
	w.after(pvc.LookForTraces)
	w.want("c", b)
	w.pass("c") // its event
	w.want("c")
	if told := w.events(); !strings.Contains(told, "DeletionReleased") {
		t.Errorf("told %q", told)
	}
}

// Each look asks for every one of them, in the same order: were one forgotten for the
// next, none would be known at the look after.
func TestAsManyCompletedPodsAreRememberedAsAClusterHas(t *testing.T) {
	const most = 150_000
	w := traced(t, alone)
	for range 2 {
		for i := range most {
			w.completedFor(types.UID(strconv.Itoa(i)))
		}
		w.clock.Step(time.Second)
	}
	for i := range most {
		if known := w.completedFor(types.UID(strconv.Itoa(i))); known != 2*time.Second {
			t.Fatalf("pod %d is known to have completed for %v", i, known)
		}
	}
}

func TestACompletedPodHoldsWhereNothingIsChosen(t *testing.T) {
	w := traced(t, alone, deleted(claim("c", p, b)), completed(user("job", "c")))
	w.pass("c")
	w.after(time.Hour)
	w.want("c", p, b)
}

// The built-in controller counts a completed pod: there is nothing to be asked before
// it has let go of P.
func TestBesideTheBuiltInACompletedPodHoldsP(t *testing.T) {
	w := traced(t, beside, deleted(choosing(claim("c", p, b), pvc.CompletedKey, "free")), completed(user("job", "c")))
	w.pass("c")
	w.after(time.Hour)
	w.want("c", p, b)
	if told := w.events(); !strings.Contains(told, "pod job on node n") {
		t.Errorf("told %q", told)
	}
}

func TestAVolumeHoldsItsClaimWhereThatIsChosen(t *testing.T) {
	for name, settings := range map[string]pvc.Settings{"beside": beside, "alone": alone} {
		t.Run(name, func(t *testing.T) {
			c := deleted(choosing(claim("c", b), pvc.AttachedKey, "hold"))
			w := traced(t, settings, c, attachment())
			w.pass("c")
			w.after(pvc.LookForTraces)
			w.want("c", b)
			if told := w.events(); !strings.Contains(told, "no pod uses the claim any more, and volume pv is still attached to node n") {
				t.Errorf("told %q", told)
			}
			w.remove(attachment())
			w.after(pvc.LookForTraces)
			w.want("c")
		})
	}
}

func TestAVolumeThatCannotBeLookedForHolds(t *testing.T) {
	w := traced(t, alone, deleted(choosing(claim("c", b), pvc.AttachedKey, "hold")))
	broken := refusing{w.WithWatch, errors.New("refused")}
	w.tracer = pvccache.NewTracer(&broken)
	w.pass("c")
	w.want("c", b)
	broken.err = nil
	w.after(lastRetry)
	w.want("c")
}

// refusing refuses to list, as long as it has an error.
type refusing struct {
	client.Reader
	err error
}

func (r *refusing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.err != nil {
		return r.err
	}
	return r.Reader.List(ctx, list, options...)
}

func TestNamespacesChooseForTheirClaims(t *testing.T) {
	w := traced(t, alone, deleted(claim("c", p, b)), completed(user("job", "c")))
	w.pass("c")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{pvc.CompletedKey: "free"}}}
	if err := w.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	chose := pvccache.NewNamespace("ns")
	chose.Labels = namespace.Labels
	w.namespaceEvents(t.Context()).OnUpdate(pvccache.NewNamespace("ns"), chose)
	w.drain()
	w.after(pvc.CompletedGrace)
	w.pass("c")
	w.want("c")
}
