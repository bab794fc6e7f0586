package pvccache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
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

// podsOf are the informer's, filled with these pods at a resourceVersion.
func podsOf(t *testing.T, version string, pods ...*corev1.Pod) *Pods {
	t.Helper()
	p := NewPods(nil, nil)
	var all []any
	for _, pod := range pods {
		all = append(all, UsesOf(pod))
	}
	do(t, p.Store().Replace(all, version))
	return p
}

func TestPodsAreFoundByThePVCsTheyName(t *testing.T) {
	p := podsOf(t, "3", tenant("a", "1", "data"), tenant("b", "2"))
	do(t, p.Store().Update(UsesOf(tenant("b", "5", "data", "logs"))))
	do(t, p.Store().Delete(UsesOf(tenant("a", "6", "data"))))
	if diff := cmp.Diff([]string{"b"}, users(p, "data")); diff != "" {
		t.Error(diff)
	}
	if p.Has("ns", "a-uid") || !p.Has("ns", "b-uid") || p.Has("other", "b-uid") {
		t.Error("pods are not found by UID")
	}
}

// listed is a fake client, which knows no watch lists.
type listed struct{ corev1client.PodInterface }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// Two pods of one name are two changes, whatever the informer saw of them.
func TestAPodThatTookANameIsAnotherChange(t *testing.T) {
	was, is := tenant("a", "1", "data"), tenant("a", "4", "data")
	is.UID = "other"
	source := fake.NewClientset(was)
	p := NewPods(listed{source.CoreV1().Pods(metav1.NamespaceAll)}, nil)
	heard := make(chan string, 9)
	name := func(u *PodUses) string {
		if u == nil {
			return "-"
		}
		return string(u.UID)
	}
	do(t, p.Follow(func(before, after *PodUses) { heard <- name(before) + " " + name(after) }))
	go p.Run(t.Context())
	do(t, p.AwaitSync(t.Context()))
	_, err := source.CoreV1().Pods("ns").Update(t.Context(), is, metav1.UpdateOptions{})
	do(t, err)
	for _, want := range []string{"- a-uid", "a-uid -", "- other"} {
		if got := <-heard; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
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
		want, got := whole.Holding(claim), podsOf(t, "1", pod).Index("ns", claim.Name).Holding(claim)
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
			t.Errorf("%s (-whole +kept)\n%s", name, diff)
		}
	}
}

// fakePods answers lists of pods at a resourceVersion.
type fakePods struct {
	client.Reader
	version string
	pods    []corev1.Pod
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

// crowd are more pods than a list is cheap for.
func crowd() (pods []*corev1.Pod) {
	for i := range cheapList + 1 {
		pods = append(pods, tenant(fmt.Sprint("pod-", i), "1"))
	}
	return pods
}

func TestReadPods(t *testing.T) {
	there := []corev1.Pod{*tenant("a", "1"), *tenant("b", "2"), *tenant("user", "8", "used"), *tenant("c", "3")}
	used := tenant("user", "7", "used")
	odd := tenant("odd", "1")
	odd.Spec.Volumes = []corev1.Volume{{Name: "of a newer API"}}
	for name, tt := range map[string]struct {
		pods     []*corev1.Pod
		live     fakePods
		arrives  *corev1.Pod // at the informer, while the read waits
		by       string
		calls    int
		released []string
	}{
		"small namespace":                {nil, fakePods{version: "8", page: 2, pods: there}, nil, ByList, 3, []string{"free"}},
		"large, the informer is there":   {append(crowd(), used), fakePods{version: "7"}, nil, ByWatch, 1, []string{"free"}},
		"large, the informer catches up": {crowd(), fakePods{version: "9"}, tenant("user", "9", "used"), ByWatch, 1, []string{"free"}},
		"large, the informer is late":    {crowd(), fakePods{version: "9", page: 9, pods: there}, nil, ByList, 2, []string{"free"}},
		"a volume of an unknown kind":    {append(crowd(), odd), fakePods{version: "7"}, nil, ByWatch, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := podsOf(t, "7", tt.pods...)
			if tt.arrives != nil {
				tt.live.fail = func(int) error { // the read is under way
					go func() { _ = p.Store().Add(UsesOf(tt.arrives)) }()
					return nil
				}
			}
			var readings []PodRead
			reader := NewPodReader(p, &tt.live, time.Now, func(r PodRead) { readings = append(readings, r) })
			batch := pvc.Settings{}.Take("ns", []*corev1.PersistentVolumeClaim{going("used", pvc.BarrierFinalizer), going("free", pvc.BarrierFinalizer)})
			releases, _ := batch.Look(reader.For(t.Context(), batch)).Judge()
			var released []string
			for _, r := range releases {
				released = append(released, r.Target().Name)
			}
			if diff := cmp.Diff(tt.released, released); diff != "" {
				t.Error(diff)
			}
			if len(readings) != 1 || readings[0].By != tt.by || tt.live.calls != tt.calls {
				t.Errorf("%d calls, told %+v", tt.live.calls, readings)
			}
		})
	}
}

func TestPodsThatCannotBeReadAreInUse(t *testing.T) {
	down := errors.New("down")
	for name, failing := range map[string]int{"the resourceVersion": 0, "the list": 1, "its second page": 2} {
		live := &fakePods{version: "8", page: 1, pods: []corev1.Pod{*tenant("a", "1"), *tenant("b", "2")}}
		live.fail = func(calls int) error {
			if calls == failing {
				return down
			}
			return nil
		}
		batch := pvc.Settings{}.Take("ns", []*corev1.PersistentVolumeClaim{going("free", pvc.BarrierFinalizer)})
		view := batch.Look(NewPodReader(podsOf(t, "7", crowd()...), live, time.Now, func(PodRead) {}).For(t.Context(), batch))
		if releases, _ := view.Judge(); len(releases) != 0 || !errors.Is(view.Err(), down) {
			t.Errorf("%s: released %v, %v", name, releases, view.Err())
		}
	}
}
