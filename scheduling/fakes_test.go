package scheduling_test

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
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
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/scheduling"
)

const namespace = "team"

// stage is a scheduler with the plugin: what its caches show, and an API server
// that compares versions.
type stage struct {
	*testing.T
	framework.Handle // nothing else is asked of it
	plugin           *scheduling.Plugin
	client           *fake.Clientset
	informers        informers.SharedInformerFactory

	mu      sync.Mutex
	claims  map[string]*corev1.PersistentVolumeClaim // as the API server has them
	version int
	writes  []string
	// before is called before every write.
	before func()
	// refuse is what the API server answers to writes and reads, or nil.
	refuse func(verb, name string) error
}

func (s *stage) ClientSet() kubernetes.Interface                        { return s.client }
func (s *stage) SharedInformerFactory() informers.SharedInformerFactory { return s.informers }

func newStage(t *testing.T, arguments string, pods ...runtime.Object) *stage {
	t.Helper()
	s := &stage{T: t, client: fake.NewClientset(pods...), claims: map[string]*corev1.PersistentVolumeClaim{}, version: 100}
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	s.client.PrependReactor("get", "persistentvolumeclaims", s.get)
	s.client.PrependReactor("patch", "persistentvolumeclaims", s.patch)
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

// cached puts claims into the API server and into the scheduler's cache.
func (s *stage) cached(claims ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	for _, claim := range claims {
		s.live(claim)
		if err := s.informers.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(claim.DeepCopy()); err != nil {
			s.Fatal(err)
		}
	}
}

// live puts a claim into the API server alone.
func (s *stage) live(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	claim.ResourceVersion = strconv.Itoa(s.version)
	s.claims[claim.Name] = claim.DeepCopy()
}

// gone takes a claim out of the API server alone.
func (s *stage) gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, name)
}

// labelled gives the namespace its labels.
func (s *stage) labelled(labels map[string]string) {
	s.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}
	if err := s.informers.Core().V1().Namespaces().Informer().GetStore().Add(object); err != nil {
		s.Fatal(err)
	}
}

// record is what a claim says of its users.
func (s *stage) record(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[name].Annotations[pvc.UsersAnnotation]
}

func (s *stage) get(a clienttesting.Action) (bool, runtime.Object, error) {
	name := a.(clienttesting.GetAction).GetName()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if err := s.refuse("get", name); err != nil {
			return true, nil, err
		}
	}
	claim, ok := s.claims[name]
	if !ok {
		return true, nil, apierrors.NewNotFound(claimResource, name)
	}
	return true, claim.DeepCopy(), nil
}

var claimResource = schema.GroupResource{Resource: "persistentvolumeclaims"}

// patch merges a document of metadata, as the API server does: onto that UID and
// that version, and none other.
func (s *stage) patch(a clienttesting.Action) (bool, runtime.Object, error) {
	action := a.(clienttesting.PatchAction)
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := action.GetName()
	if s.refuse != nil {
		if err := s.refuse("patch", name); err != nil {
			return true, nil, err
		}
	}
	var document struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
	}
	if err := json.Unmarshal(action.GetPatch(), &document); err != nil {
		return true, nil, err
	}
	claim, ok := s.claims[name]
	switch {
	case !ok:
		return true, nil, apierrors.NewNotFound(claimResource, name)
	case document.Metadata.UID == "" || document.Metadata.ResourceVersion == "":
		s.Errorf("write onto %s names no incarnation: %s", name, action.GetPatch())
	case document.Metadata.UID != claim.UID || document.Metadata.ResourceVersion != claim.ResourceVersion:
		return true, nil, apierrors.NewConflict(claimResource, name, nil)
	}
	claim = claim.DeepCopy()
	claim.Annotations = maps.Clone(claim.Annotations)
	for key, value := range document.Metadata.Annotations {
		if value == nil {
			delete(claim.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, *value)
	}
	s.version++
	claim.ResourceVersion = strconv.Itoa(s.version)
	s.claims[name] = claim
	s.writes = append(s.writes, name)
	return true, claim.DeepCopy(), nil
}

// cycle is the state of one pod's scheduling.
type cycle struct {
	framework.CycleState // nothing else is asked of it
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
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

func newClaim(name string, with ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	for _, do := range with {
		do(claim)
	}
	return claim
}

func dying(claim *corev1.PersistentVolumeClaim) {
	now := metav1.Now()
	claim.DeletionTimestamp = &now
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value) }
}
