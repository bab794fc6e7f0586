package scheduling_test

import (
	"bytes"
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/scheduling"
	"lockstep.dev/lockstep/test/fakeapi"
)

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

// newStage returns a scheduler whose caches show all PVCs and namespaces among the objects.
func newStage(t *testing.T, arguments string, objects ...client.Object) *stage {
	t.Helper()
	s := &stage{T: t, client: fake.NewClientset(), api: fakeapi.NewShared(objects...)}
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	s.client.PrependReactor("*", "*", s.answer)
	s.api.Do(func(api *fakeapi.Server) {
		for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](api.Objects) {
			_ = s.informers.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(claim)
		}
		for _, namespace := range fakeapi.All[*corev1.Namespace](api.Objects) {
			_ = s.informers.Core().V1().Namespaces().Informer().GetStore().Add(namespace)
		}
	})
	var raw runtime.Object
	if arguments != "" {
		raw = &runtime.Unknown{Raw: []byte(arguments), ContentType: runtime.ContentTypeJSON}
	}
	plugin, err := scheduling.New(t.Context(), raw, s)
	if err != nil {
		t.Fatal(err)
	}
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
	case clienttesting.ListAction:
		list := &corev1.PodList{}
		return true, list, s.api.List(s.Context(), list, client.InNamespace(a.GetNamespace()))
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
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

func newClaim(name string, with ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, UID: types.UID("uid-" + name)}}
	for _, do := range with {
		do(claim)
	}
	return claim
}

func terminating(claim *corev1.PersistentVolumeClaim) {
	now := metav1.Now()
	claim.DeletionTimestamp = &now
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value) }
}
