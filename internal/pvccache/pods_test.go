package pvccache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/sieve"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// tenant is a pod on a node that names claims.
func tenant(name, version string, claims ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: version},
		Spec:       corev1.PodSpec{NodeName: "n", Volumes: fakeapi.Using(claims...)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func going(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", Finalizers: finalizers, DeletionTimestamp: &metav1.Time{},
	}}
}

func users(p *Pods, claim string) []string {
	return fakeapi.Each(p.Index("ns", claim).Uses(going(claim)), func(use pvc.Use) string { return use.Pod.Name })
}

// podsOf are the informer's, filled with these pods at a resourceVersion.
func podsOf(t *testing.T, version string, pods ...*corev1.Pod) *Pods {
	t.Helper()
	p := NewPods(nil, nil)
	var all []any
	for _, pod := range pods {
		all = append(all, UsesOf(pod))
	}
	expect.OK(t, p.Store().Replace(all, version))
	return p
}

func TestPodsAreFoundByThePVCsTheyName(t *testing.T) {
	p := podsOf(t, "3", tenant("a", "1", "data"), tenant("b", "2"))
	expect.OK(t, p.Store().Update(UsesOf(tenant("b", "5", "data", "logs"))))
	expect.OK(t, p.Store().Delete(UsesOf(tenant("a", "6", "data"))))
	expect.Equal(t, []string{"b"}, users(p, "data"))
	expect.That(t, !p.Has("ns", "a-uid") && p.Has("ns", "b-uid") && !p.Has("other", "b-uid"), "pods are not found by UID")
}

func TestPodsAreDecodedAsFarAsTheyConcernPVCs(t *testing.T) {
	fakeapi.CheckCodecs(t, sieve.Codecs(usesSieve()), UsesOf)
}

// What protection decides from a pod must be the same whether it was kept or read.
func TestWhatIsKeptOfAPodDecidesAlike(t *testing.T) {
	indexed := func(pod *corev1.Pod) *pvc.Index {
		index := pvc.NewIndex()
		index.See(pod)
		return index
	}
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	for seed := range uint64(100) {
		whole := fakeapi.AnyPod(seed)
		if seed%2 == 0 {
			whole.DeletionTimestamp = nil
			whole.Spec.SchedulingGates = append(whole.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: pvc.UseGate})
		}
		pods := podsOf(t, "1", whole)
		kept := pods.by(indexUID, whole.Namespace+"/"+string(whole.UID))[0].Pod()
		diff := cmp.Diff(indexed(whole), indexed(kept), all)
		expect.That(t, diff == "", "seed %d (-whole +kept)\n%s", seed, diff)
		gated := pods.Gated(client.ObjectKeyFromObject(whole))
		if (gated != nil) != pvc.Gated(whole) || gated != nil && !slices.Equal(gated.Spec.SchedulingGates, whole.Spec.SchedulingGates) {
			t.Errorf("seed %d: gated %+v", seed, gated)
		}
	}
}

// fakePods answers lists of pods at a resourceVersion.
type fakePods struct {
	client.Reader
	version string
	pods    []corev1.Pod
	more    int64 // pods beyond the first one
	page    int
	fail    func(calls int) error
	calls   int
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
	pods, whole := list.(*corev1.PodList)
	if !whole {
		list.SetRemainingItemCount(&f.more)
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
	pods.Items = f.pods[begin:end]
	return nil
}

func TestReadPods(t *testing.T) {
	there := []corev1.Pod{*tenant("a", "1"), *tenant("b", "2"), *tenant("user", "8", "used"), *tenant("c", "3")}
	used := tenant("user", "7", "used")
	odd := tenant("odd", "1")
	odd.Spec.Volumes = []corev1.Volume{{Name: "of a newer API"}}
	two, down := there[:2], errors.New("down")
	failing := func(at int) func(int) error {
		return func(calls int) error {
			if calls == at {
				return down
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		pods     []*corev1.Pod
		live     fakePods
		arrives  *corev1.Pod // at the informer, while the read waits
		by       string
		calls    int
		released []string
	}{
		"small namespace":                {nil, fakePods{version: "8", page: 2, pods: there}, nil, ByList, 3, []string{"free"}},
		"large, the informer is there":   {[]*corev1.Pod{used}, fakePods{version: "7", more: cheapList}, nil, ByWatch, 1, []string{"free"}},
		"large, the informer catches up": {nil, fakePods{version: "9", more: cheapList}, tenant("user", "9", "used"), ByWatch, 1, []string{"free"}},
		"large, the informer is late":    {nil, fakePods{version: "9", more: cheapList, page: 9, pods: there}, nil, ByList, 2, []string{"free"}},
		"a volume of an unknown kind":    {[]*corev1.Pod{odd}, fakePods{version: "7", more: cheapList}, nil, ByWatch, 1, nil},
		"the resourceVersion is unread":  {nil, fakePods{version: "8", fail: failing(0)}, nil, ByList, 0, nil},
		"the list is unread":             {nil, fakePods{version: "8", page: 1, pods: two, fail: failing(1)}, nil, ByList, 1, nil},
		"its second page is unread":      {nil, fakePods{version: "8", page: 1, pods: two, fail: failing(2)}, nil, ByList, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := podsOf(t, "7", tt.pods...)
			if tt.arrives != nil {
				tt.live.fail = func(int) error { // the read is under way
					go func() { _ = p.Store().Add(UsesOf(tt.arrives)) }()
					return nil
				}
			}
			var answers []string
			reader := &PodReader{Pods: p, Live: &tt.live, Report: func(by string, _ time.Duration, _ error) { answers = append(answers, by) }}
			batch := pvc.Settings{}.Take("ns", []*corev1.PersistentVolumeClaim{going("used", pvc.BarrierFinalizer), going("free", pvc.BarrierFinalizer)})
			fails, view := tt.live.fail != nil && tt.arrives == nil, batch.Look(reader.For(t.Context(), batch))
			expect.That(t, errors.Is(view.Err(), down) == fails, "%v", view.Err())
			releases, _ := view.Judge()
			released := fakeapi.Each(releases, func(r pvc.Release) string { return r.Target().Name })
			expect.Equal(t, tt.released, released)
			expect.That(t, len(answers) == 1 && answers[0] == tt.by && tt.live.calls == tt.calls,
				"%d calls, answered by %v", tt.live.calls, answers)
		})
	}
}

func TestTwoObjectsOfOneNameAreTwoChanges(t *testing.T) {
	was := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	next := was.DeepCopy()
	next.UID = "2"
	for name, tt := range map[string]struct {
		event func(toolscache.ResourceEventHandlerFuncs)
		want  []string
	}{
		"deleted": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnDelete(was) }, []string{"1 -"}},
		"deleted unseen": {func(h toolscache.ResourceEventHandlerFuncs) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: was})
		}, []string{"1 -"}},
		"created again": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, next) }, []string{"1 -", "- 2"}},
		"changed":       {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(was, was) }, []string{"1 1"}},
		"created":       {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(was, false) }, []string{"- 1"}},
		"another type":  {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(&corev1.Pod{}, false) }, nil},
	} {
		var reported []string
		tt.event(eventHandler(func(before, after *corev1.PersistentVolumeClaim) {
			reported = append(reported, uidOf(before)+" "+uidOf(after))
		}))
		expect.Equalf(t, tt.want, reported, "%s: reported", name)
	}
}

func uidOf(claim *corev1.PersistentVolumeClaim) string {
	if claim == nil {
		return "-"
	}
	return string(claim.UID)
}

// Only a change of what a pod uses concerns its PVCs.
func TestPodsThatConcernPVCs(t *testing.T) {
	unbound, bound, over := tenant("p", "1", "data"), tenant("p", "2", "data"), tenant("p", "3", "data")
	unbound.Spec.NodeName, over.Status.Phase = "", corev1.PodSucceeded
	shut := over.DeepCopy()
	shut.DeletionTimestamp, shut.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64)
	for name, tt := range map[string]struct {
		before, after *corev1.Pod
		want          int
	}{
		"is created": {nil, unbound, 1}, "is bound": {unbound, bound, 1}, "changes": {bound, bound, 0}, "completes": {bound, over, 1},
		"is shut down": {over, shut, 1}, "is deleted": {bound, nil, 1}, "uses nothing": {tenant("q", "1"), nil, 0},
	} {
		uses := func(pod *corev1.Pod) *PodUses {
			if pod == nil {
				return nil
			}
			return UsesOf(pod)
		}
		concerned := 0
		podChanged(uses(tt.before), uses(tt.after), func(types.NamespacedName) { concerned++ }, nil)
		expect.Equalf(t, tt.want, concerned, "a pod %s: PVCs", name)
	}
}
