package pvccache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/pvc"
)

func diskNode(name string, ready corev1.ConditionStatus, handles ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	for _, handle := range handles {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/disk.example.com^"+handle))
	}
	return node
}

func disk(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: name},
	}}}
}

func attachment(volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume + "-" + node}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disk.example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
	}}
}

// disks is a cluster with volumes on nodes, and what was asked of it.
type disks struct {
	client.Reader
	asked  []string
	failed string
}

func newDisks() *disks {
	d := &disks{}
	note := func(what string) error {
		d.asked = append(d.asked, what)
		if what == d.failed {
			return errors.New("refused")
		}
		return nil
	}
	d.Reader = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
		diskNode("idle", corev1.ConditionTrue), diskNode("busy", corev1.ConditionTrue, "used"), diskNode("lost", corev1.ConditionUnknown, "stale"),
		disk("used"), disk("free"), disk("stale"), disk("attached"), attachment("attached", "idle"), attachment("attached", "lost"),
	).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(note(fmt.Sprintf("list %T", list)), c.List(ctx, list, options...))
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := note(fmt.Sprintf("get %T %s", o, key.Name)); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	return d
}

func asking(volume string, nodes ...string) pvc.Question {
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	return pvc.Question{Claim: claim, Nodes: nodes}
}

func TestTraces(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  pvc.Question
		want pvc.Traces
	}{
		{"attached somewhere", asking("attached", "busy"), pvc.Traces{Attached: []string{"idle", "lost"}}},
		{"in use there", asking("used", "idle", "busy"), pvc.Traces{InUse: []string{"busy"}}},
		{"not in use there", asking("used", "idle"), pvc.Traces{}},
		{"a node that does not report", asking("free", "lost"), pvc.Traces{Silent: []string{"lost"}}},
		{"a node that is gone", asking("free", "gone"), pvc.Traces{Silent: []string{"gone"}}},
		{"anywhere: in use", asking("used"), pvc.Traces{InUse: []string{"busy"}}},
		{"anywhere: said one last that does not report", asking("stale"), pvc.Traces{InUse: []string{"lost"}}},
		{"anywhere: nowhere", asking("free"), pvc.Traces{}},
		{"a volume that is gone", asking("gone", "idle"), pvc.Traces{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewTracer(newDisks()).For(t.Context())(tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTracesAreReadOnceALook(t *testing.T) {
	d := newDisks()
	ask := NewTracer(d).For(t.Context())
	if len(d.asked) > 0 {
		t.Fatalf("asked %v before anybody did", d.asked)
	}
	for _, q := range []pvc.Question{asking("used"), asking("free"), asking("free", "busy"), asking("used", "busy")} {
		if _, err := ask(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, once := range []string{"list *v1.VolumeAttachmentList", "list *v1.NodeList", "get *v1.Node busy"} {
		if n := len(slices.DeleteFunc(slices.Clone(d.asked), func(s string) bool { return s != once })); n != 1 {
			t.Errorf("%s: %d times in %v", once, n, d.asked)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for _, what := range []string{"list *v1.VolumeAttachmentList", "get *v1.PersistentVolume used", "get *v1.Node idle", "list *v1.NodeList"} {
		d := newDisks()
		d.failed = what
		ask := NewTracer(d).For(t.Context())
		q := asking("used", "idle")
		if what == "list *v1.NodeList" {
			q.Nodes = nil
		}
		if _, err := ask(q); err == nil {
			t.Errorf("%s is refused, and there is an answer", what)
		}
		d.failed = ""
		if _, err := ask(q); err != nil {
			t.Errorf("%s is refused no more, and: %v", what, err)
		}
	}
}

func TestPodsAreKnownToHaveCompleted(t *testing.T) {
	whole := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}}}
	trimmed, err := trimToUses(whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range map[string]*corev1.Pod{"kept": usesOf(whole).Pod(), "trimmed and kept": usesOf(trimmed.(*corev1.Pod)).Pod()} {
		if !pvc.Completed(pod) {
			t.Errorf("%s: it has not completed", name)
		}
	}
	whole.Status.ContainerStatuses = nil
	if pvc.Completed(usesOf(whole).Pod()) {
		t.Error("its kubelet never said that anything ended, and it has completed")
	}
}
