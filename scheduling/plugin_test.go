package scheduling_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/scheduling"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func scratch(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	return pod
}

func ownedBy(uid types.UID) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uid, Controller: new(true)}}
	}
}

func uid(uid types.UID) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.UID = uid }
}

func TestATerminatingPVCIsAsGoodAsMissing(t *testing.T) {
	const never = framework.UnschedulableAndUnresolvable
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		claims []client.Object
		code   framework.Code
		says   string
	}{
		{"no PVCs", newPod("web"), nil, framework.Skip, ""},
		{"missing", newPod("web", "data"), nil, never, `persistentvolumeclaim "data" not found`},
		{"ephemeral, of a former pod", scratch(newPod("web")), []client.Object{newClaim("web-scratch", ownedBy("uid-old"))}, never, `pod is not owner`},
	} {
		s := newStage(t, tt.claims...)
		_, status := s.filter(tt.pod)
		if status.Code() != tt.code || !strings.Contains(status.Message(), tt.says) || len(s.client.Actions()) > 0 {
			t.Errorf("%s: got %v %q after %d requests, want %v %q", tt.name, status.Code(), status.Message(), len(s.client.Actions()), tt.code, tt.says)
		}
	}
}

func TestHintsMatchThePodsOwnPVCs(t *testing.T) {
	s := newStage(t)
	events, err := s.plugin.EventsToRegister(t.Context())
	if err != nil || len(events) != 1 || events[0].Event.Resource != framework.PersistentVolumeClaim ||
		events[0].Event.ActionType != framework.Add|framework.Update|framework.Delete {
		t.Fatalf("got %v, %v", events, err)
	}
	elsewhere := newClaim("data", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })
	for _, tt := range []struct {
		name          string
		before, after any
		want          framework.QueueingHint
		wrong         bool
	}{
		{"created", nil, newClaim("data"), framework.Queue, false},
		{"created, ephemeral", nil, newClaim("web-scratch"), framework.Queue, false},
		{"created, another's", nil, newClaim("logs"), framework.QueueSkip, false},
		{"created, elsewhere", nil, elsewhere, framework.QueueSkip, false},
		{"created, terminating", nil, newClaim("data", terminating), framework.QueueSkip, false},
		{"changed", newClaim("data"), newClaim("data"), framework.Queue, false},
		{"changed, another's", newClaim("logs"), newClaim("logs"), framework.QueueSkip, false},
		{"deleted", newClaim("data"), newClaim("data", terminating), framework.QueueSkip, false},
		{"gone", newClaim("data", terminating), nil, framework.Queue, false},
		{"gone, another's", newClaim("logs"), nil, framework.QueueSkip, false},
		{"gone unseen", cache.DeletedFinalStateUnknown{}, nil, framework.Queue, true},
	} {
		hint, err := events[0].QueueingHintFn(klog.Background(), scratch(newPod("web", "data")), tt.before, tt.after)
		expect.Equalf(t, tt.want, hint, "%s: %v", tt.name, err)
		expect.Equalf(t, tt.wrong, err != nil, "%s: %v", tt.name, err)
	}
	fragments, status := s.plugin.SignPod(t.Context(), newPod("web", "data"))
	expect.That(t, status.IsSuccess() && len(fragments) == 1, "signature %v, %v", fragments, status)
}

func TestAPodIsRecordedBeforeItIsBound(t *testing.T) {
	s := newStage(t, newClaim("data"), newClaim("logs", annotated(pvc.UsersAnnotation, "a=1")), newClaim("cache", unprotected))
	pod := newPod("web", "data", "logs", "cache", "data")
	for _, writes := range []int{2, 0} {
		if status := s.schedule(pod); !status.IsSuccess() || s.record("data") != "web=uid-web" || s.record("logs") != "a=1,web=uid-web" || s.record("cache") != "" {
			t.Errorf("got %v, records %q, %q, %q", status, s.record("data"), s.record("logs"), s.record("cache"))
		}
		expect.Equalf(t, writes, s.writes(), "writes")
	}
}

// Seconds to minutes lie between the choice of a node and the bind, and a moment between the
// read and the write.
func TestNoPodIsBoundToAPVCThatChanged(t *testing.T) {
	erase := func(s *stage) {
		s.api.Do(func(api *fakeapi.Server) { api.Erase(fakeapi.Find[*corev1.PersistentVolumeClaim](api, "data")) })
	}
	becomes := func(with func(*corev1.PersistentVolumeClaim)) func(*stage) {
		return func(s *stage) { s.live(newClaim("data", with)) }
	}
	for _, tt := range []struct {
		name    string
		happens func(*stage)
		says    string
	}{
		{"terminating", becomes(terminating), `"data" is being deleted`},
		{"gone", erase, `"data" not found`},
		{"created again", becomes(uid("another")), `"data" was created anew`},
		{"unreadable record", becomes(annotated(pvc.UsersAnnotation, "?")), `use record: "?"`},
	} {
		for _, late := range []bool{false, true} {
			s, pod := newStage(t, newClaim("data")), newPod("web", "data")
			state, _ := s.filter(pod)
			if happens := sync.OnceFunc(func() { tt.happens(s) }); late {
				s.refuse("patch", func(string) error { happens(); return nil })
			} else {
				happens()
			}
			status := s.bind(t.Context(), state, pod)
			if status.Code() != framework.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), tt.says) {
				t.Errorf("%s, after the read %t: got %v %q", tt.name, late, status.Code(), status.Message())
			}
			if writes := s.writes(); !late && writes > 0 || late && writes > 1 {
				t.Errorf("%s, after the read %t: %d writes", tt.name, late, writes)
			}
		}
	}
}

// A change of a PVC is read again a few times. A scheduler without the right reports an error:
// it waits for no change of the PVC.
func TestRefusedWritesAreRetriedAFewTimes(t *testing.T) {
	down := errors.New("the API server is away")
	forbidden := apierrors.NewForbidden(claimResource, "data", errors.New("guarded"))
	for _, tt := range []struct {
		name, verb string
		err        error // nil: the PVC changes
		refusals   int
		code       framework.Code
		tries      int
	}{
		{"a PVC that changed twice", "patch", nil, 2, framework.Success, 3},
		{"a PVC that changes all the time", "patch", nil, 100, framework.Unschedulable, 5},
		{"a policy that refused once", "patch", forbidden, 1, framework.Success, 2},
		{"a read without the right", "get", forbidden, 100, framework.Error, 5},
		{"a write without the right", "patch", forbidden, 100, framework.Error, 5},
		{"a failed read", "get", down, 100, framework.Error, 1},
		{"a failed write", "patch", down, 100, framework.Error, 1},
	} {
		s, tries := newStage(t, newClaim("data")), 0
		s.refuse(tt.verb, func(string) error {
			if tries++; tries > tt.refusals {
				return nil
			}
			if tt.err == nil {
				s.live(newClaim("data", annotated(pvc.UsersAnnotation, fmt.Sprintf("other=%d", tries))))
			}
			return tt.err
		})
		status := s.schedule(newPod("web", "data"))
		if status.Code() != tt.code || tries != tt.tries || tt.code == framework.Error && !errors.Is(status.AsError(), tt.err) {
			t.Errorf("%s: got %v %q after %d tries", tt.name, status.Code(), status.Message(), tries)
		}
	}
	s := newStage(t)
	status := s.plugin.PreBind(t.Context(), newCycle(), newPod("web", "data"), "node")
	expect.Equalf(t, framework.Error, status.Code(), "without PreFilter: got %v", status)
}

// A full record is worth another try: the operator removes pods that are gone.
func TestAFullRecordWaits(t *testing.T) {
	full := strings.Repeat("p", 64<<10) + "=1"
	s := newStage(t, newClaim("data", annotated(pvc.UsersAnnotation, full)))
	if status := s.schedule(newPod("web", "data")); status.Code() != framework.Unschedulable || s.record("data") != full {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
}

// A scheduler binds many pods at a time.
func TestPodsThatShareAPVCDoNotRefuseEachOther(t *testing.T) {
	const pods = 40
	s := newStage(t, newClaim("data"), newClaim("logs"))
	var running sync.WaitGroup
	for i := range pods {
		running.Go(func() {
			claims := []string{"data", "logs"}
			if i%2 == 1 {
				slices.Reverse(claims)
			}
			status := s.schedule(newPod(fmt.Sprintf("web-%d", i), claims...))
			expect.That(t, status.IsSuccess(), "pod %d: %v", i, status)
		})
	}
	running.Wait()
	expect.Equalf(t, 2*pods, s.writes(), "writes for %d pods", pods)
}

var claimResource = schema.GroupResource{Resource: "persistentvolumeclaims"}

// stage is a scheduler with the plugin: its caches, and an API server.
type stage struct {
	*testing.T
	framework.Handle // what the plugin does not ask for
	plugin           *scheduling.Plugin
	client           *fake.Clientset
	informers        informers.SharedInformerFactory
	api              *fakeapi.Shared
}

func (s *stage) ClientSet() kubernetes.Interface                        { return s.client }
func (s *stage) SharedInformerFactory() informers.SharedInformerFactory { return s.informers }

// newStage returns a scheduler whose caches show all PVCs among the objects.
func newStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	s := &stage{T: t, client: fake.NewClientset(), api: fakeapi.NewShared(objects...)}
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	s.client.PrependReactor("*", "*", s.answer)
	s.api.Do(func(api *fakeapi.Server) {
		for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](api.Objects) {
			_ = s.informers.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(claim)
		}
	})
	plugin := expect.Value(scheduling.New(t.Context(), nil, s))(t)
	s.plugin = plugin.(*scheduling.Plugin)
	return s
}

// answer sends requests of the clientset to the API server.
func (s *stage) answer(a clienttesting.Action) (bool, runtime.Object, error) {
	switch a := a.(type) {
	case clienttesting.PatchAction:
		if patch := a.GetPatch(); !bytes.Contains(patch, []byte(`"uid":"`)) || !bytes.Contains(patch, []byte(`"resourceVersion":"`)) {
			s.Errorf("write without preconditions: %s", patch)
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: a.GetNamespace(), Name: a.GetName()}}
		return true, claim, s.api.Patch(s.Context(), claim, client.RawPatch(a.GetPatchType(), a.GetPatch()))
	case clienttesting.GetAction:
		claim := &corev1.PersistentVolumeClaim{}
		return true, claim, s.api.Get(s.Context(), types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}, claim)
	}
	return false, nil, nil
}

// live changes the API server alone.
func (s *stage) live(claim *corev1.PersistentVolumeClaim) {
	s.api.Do(func(api *fakeapi.Server) { api.Put(claim.DeepCopy()) })
}

// record returns the use record of a PVC.
func (s *stage) record(name string) (record string) {
	s.api.Do(func(api *fakeapi.Server) {
		record = fakeapi.Find[*corev1.PersistentVolumeClaim](api, name).Annotations[pvc.UsersAnnotation]
	})
	return record
}

// writes returns the number of writes since the last call.
func (s *stage) writes() int { return s.api.Requests("patch", "PersistentVolumeClaim") }

// refuse sets what the API server answers to a verb.
func (s *stage) refuse(verb string, answer func(name string) error) {
	s.api.Fail = func(did string, of fakeapi.Name) error {
		if did != verb {
			return nil
		}
		return answer(of.Name)
	}
}

// cycle is the state of one pod's scheduling.
type cycle struct {
	framework.CycleState // what the plugin does not ask for
	data                 map[framework.StateKey]framework.StateData
}

func newCycle() *cycle { return &cycle{data: map[framework.StateKey]framework.StateData{}} }

func (c *cycle) Write(key framework.StateKey, data framework.StateData) { c.data[key] = data }

func (c *cycle) Read(key framework.StateKey) (framework.StateData, error) {
	if data, ok := c.data[key]; ok {
		return data, nil
	}
	return nil, framework.ErrNotFound
}

// filter runs the first half, up to the choice of a node.
func (s *stage) filter(pod *corev1.Pod) (*cycle, *framework.Status) {
	state := newCycle()
	_, status := s.plugin.PreFilter(s.Context(), state, pod, nil)
	return state, status
}

// bind runs the second half, as the framework does.
func (s *stage) bind(ctx context.Context, state *cycle, pod *corev1.Pod) *framework.Status {
	if _, status := s.plugin.PreBindPreFlight(ctx, state, pod, "node"); !status.IsSuccess() {
		return status
	}
	return s.plugin.PreBind(ctx, state, pod, "node")
}

// schedule runs both.
func (s *stage) schedule(pod *corev1.Pod) *framework.Status {
	state, status := s.filter(pod)
	if !status.IsSuccess() && !status.IsSkip() {
		return status
	}
	return s.bind(s.Context(), state, pod)
}

func newPod(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, UID: types.UID("uid-" + name)}}
	pod.Spec.Volumes = fakeapi.Using(claims...)
	return pod
}

func newClaim(name string, with ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: fakeapi.Namespace, Name: name, UID: types.UID("uid-" + name), Finalizers: []string{pvc.BarrierFinalizer},
	}}
	return fakeapi.Edited(claim, with...)
}

func terminating(claim *corev1.PersistentVolumeClaim) {
	now := metav1.Now()
	claim.DeletionTimestamp = &now
}

func unprotected(claim *corev1.PersistentVolumeClaim) { claim.Finalizers = nil }

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value) }
}
