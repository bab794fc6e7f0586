package pvccache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// tenant is a pod on a node that names claims.
func tenant(name, version string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: version},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return pod
}

func going(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", Finalizers: finalizers, DeletionTimestamp: &metav1.Time{},
	}}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func users(p *Pods, claim string) (names []string) {
	for _, use := range p.Index("ns", claim).Uses(going(claim)) {
		names = append(names, use.Pod.Name)
	}
	return names
}

func TestPodsAreFoundByTheirClaims(t *testing.T) {
	p := NewPods()
	if p.Synced() {
		t.Error("synced before anything came")
	}
	do(t, p.Sink().Replace([]any{tenant("a", "1", "data"), tenant("b", "2")}, "3"))
	if !p.Synced() || !p.hasReached("3") || p.hasReached("4") {
		t.Error("a list says how far it is")
	}
	do(t, p.Sink().Update(tenant("b", "5", "data", "logs")))
	do(t, p.Sink().Delete(tenant("a", "6", "data")))
	if diff := cmp.Diff([]string{"b"}, users(p, "data")); diff != "" {
		t.Error(diff)
	}
	if !p.hasReached("6") || p.hasReached("7") || p.Has("ns", "a-uid") || !p.Has("ns", "b-uid") || p.Count("ns") != 1 {
		t.Error("an event says how far it is, and what is there")
	}
	do(t, (*podStore)(p).Bookmark("9"))
	if !p.hasReached("9") {
		t.Error("a bookmark says how far it is")
	}
	do(t, p.Sink().Delete(tenant("b", "10")))
	if len(p.namespaces) != 0 {
		t.Error("an empty namespace stays in memory")
	}
}

func TestEveryChangeIsHeardOnce(t *testing.T) {
	p := NewPods()
	var heard []string
	name := func(u *PodUses) string {
		if u == nil {
			return "-"
		}
		return fmt.Sprintf("%s@%s", u.UID, u.ResourceVersion)
	}
	p.Follow(func(before, after *PodUses) { heard = append(heard, name(before)+" "+name(after)) })
	other := tenant("a", "4")
	other.UID = "other"
	do(t, p.Sink().Replace([]any{tenant("a", "1", "data"), tenant("gone", "2", "data")}, "3"))
	heard = nil
	do(t, p.Sink().Add(tenant("a", "1", "data"))) // seen already
	do(t, p.Sink().Update(other))
	do(t, p.Sink().Replace([]any{other}, "5")) // and gone went unseen
	do(t, p.Sink().Delete(other))
	want := []string{"a-uid@1 -", "- other@4", "gone-uid@2 -", "other@4 -"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What protection decides from a pod must be the same whether it was kept or read.
func TestWhatIsKeptOfAPodDecidesAlike(t *testing.T) {
	grace := int64(0)
	own := func(edit func(*corev1.Pod)) *corev1.Pod {
		pod := tenant("p", "1")
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		if edit != nil {
			edit(pod)
		}
		return pod
	}
	claim := going("p-v")
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p-uid", Controller: new(true)}}
	unknown := tenant("p", "1")
	unknown.Spec.Volumes = []corev1.Volume{{Name: "new"}}
	harmless := tenant("p", "1")
	harmless.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for name, pod := range map[string]*corev1.Pod{
		"named":    tenant("p", "1", "p-v"),
		"own":      own(nil),
		"unbound":  own(func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		"leaving":  own(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
		"shut":     own(func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, &grace }),
		"unknown":  unknown,
		"harmless": harmless,
	} {
		whole := pvc.NewIndex()
		whole.See(pod)
		kept := NewPods()
		trimmed, err := trimToUses(pod.DeepCopy())
		do(t, err)
		do(t, kept.Sink().Add(trimmed))
		index := kept.Index("ns", claim.Name)
		want, got := whole.Holding(claim), index.Holding(claim)
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
			t.Errorf("%s (-whole +kept)\n%s", name, diff)
		}
	}
}

// fakePods answers lists of pods, as a server that is at a version.
type fakePods struct {
	client.Reader
	version string
	pods    []corev1.Pod
	page    int
	fail    func(calls int) error
	calls   int
	full    int
	met     []string
}

// Get reads one pod as it is now.
func (f *fakePods) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	f.met = append(f.met, key.Name)
	if f.fail != nil {
		if err := f.fail(f.calls); err != nil {
			return err
		}
	}
	f.calls++
	for i := range f.pods {
		if pod, ok := object.(*corev1.Pod); ok && f.pods[i].Name == key.Name {
			f.pods[i].DeepCopyInto(pod)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

func (f *fakePods) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if f.fail != nil {
		if err := f.fail(f.calls); err != nil {
			return err
		}
	}
	f.calls++
	list.SetResourceVersion(f.version)
	if o.Limit == 1 {
		return nil
	}
	begin := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &begin); err != nil {
			return err
		}
	}
	end := min(begin+f.page, len(f.pods))
	if end < len(f.pods) {
		list.SetContinue(fmt.Sprint(end))
	}
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = f.pods[begin:end]
		if begin == 0 {
			f.full++
		}
	case *metav1.PartialObjectMetadataList:
		for _, pod := range f.pods[begin:end] {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
		}
	}
	return nil
}

func looked(t *testing.T, p *Pods, live *fakePods, claims ...*corev1.PersistentVolumeClaim) (pvc.LiveView, []Reading) {
	t.Helper()
	var readings []Reading
	looker := NewLooker(p, live, time.Now, func(r Reading) { readings = append(readings, r) })
	batch := pvc.Settings{}.Take("ns", claims)
	return batch.Look(looker.For(t.Context(), batch)), readings
}

func judged(view pvc.LiveView) (released []string) {
	releases, _ := view.Judge()
	for _, r := range releases {
		released = append(released, r.Target().Name)
	}
	return released
}

func TestAFreshWatchSparesAList(t *testing.T) {
	p := NewPods()
	do(t, p.Sink().Replace([]any{tenant("user", "1", "used"), tenant("other", "2", "third")}, "7"))
	live := &fakePods{version: "7"}
	view, readings := looked(t, p, live, going("used", pvc.BarrierFinalizer), going("free", pvc.BarrierFinalizer))
	if diff := cmp.Diff([]string{"free"}, judged(view)); diff != "" {
		t.Error(diff)
	}
	if live.full != 0 || len(readings) != 1 || readings[0].By != ByWatch {
		t.Errorf("%d lists, told %+v", live.full, readings)
	}
}

func TestALateWatchIsNotBelieved(t *testing.T) {
	p := NewPods()
	do(t, p.Sink().Replace([]any{}, "7"))
	live := &fakePods{version: "8", page: 2, pods: []corev1.Pod{*tenant("a", "1"), *tenant("b", "2"), *tenant("user", "8", "used"), *tenant("c", "3")}}
	view, readings := looked(t, p, live, going("used", pvc.BarrierFinalizer), going("free", pvc.BarrierFinalizer))
	if diff := cmp.Diff([]string{"free"}, judged(view)); diff != "" {
		t.Error(diff)
	}
	if live.full != 1 || live.calls != 3 || readings[0].By != ByList {
		t.Errorf("%d lists, %d calls, told %+v", live.full, live.calls, readings)
	}
}

func TestALargeNamespaceWaitsForTheWatch(t *testing.T) {
	p := NewPods()
	var all []any
	for i := range cheapList + 1 {
		all = append(all, tenant(fmt.Sprint("pod-", i), "1"))
	}
	do(t, p.Sink().Replace(all, "7"))
	live := &fakePods{version: "9"}
	live.fail = func(calls int) error { // the probe is under way: the watch catches up
		go func() { _ = p.Sink().Add(tenant("user", "9", "used")) }()
		return nil
	}
	view, readings := looked(t, p, live, going("used", pvc.BarrierFinalizer))
	if len(judged(view)) != 0 || readings[0].By != ByWatch {
		t.Errorf("released %v, told %+v", judged(view), readings)
	}
}

func TestWhatCannotBeReadIsInUse(t *testing.T) {
	down := errors.New("down")
	for name, failing := range map[string]int{"the probe": 0, "the list": 1, "its second page": 2} {
		p := NewPods()
		do(t, p.Sink().Replace([]any{}, "7"))
		live := &fakePods{version: "8", page: 1, pods: []corev1.Pod{*tenant("a", "1"), *tenant("b", "2")}}
		live.fail = func(calls int) error {
			if calls == failing {
				return down
			}
			return nil
		}
		view, readings := looked(t, p, live, going("free", pvc.BarrierFinalizer))
		if len(judged(view)) != 0 || !errors.Is(view.Err(), down) || !errors.Is(readings[0].Err, down) {
			t.Errorf("%s: released %v, %v", name, judged(view), view.Err())
		}
	}
}

func TestANamespaceOfUnknownVolumesIsInUse(t *testing.T) {
	p := NewPods()
	odd := tenant("odd", "1")
	odd.Spec.Volumes = []corev1.Volume{{Name: "of a newer API"}}
	do(t, p.Sink().Replace([]any{odd}, "7"))
	view, _ := looked(t, p, &fakePods{version: "7"}, going("free", pvc.BarrierFinalizer))
	if released := judged(view); len(released) != 0 {
		t.Errorf("released %v", released)
	}
}
