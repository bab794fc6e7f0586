package volumes

import (
	"encoding/json"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// Line is one thing that the populator decided.
type Line struct {
	// Pod is its UID.
	Pod types.UID `json:"pod"`
	// Volume is the pod's name for what was admitted, and Claim the UID of the claim
	// behind it.
	Volume string    `json:"volume,omitempty"`
	Claim  types.UID `json:"claim,omitempty"`
	// Refused says why something was not.
	Refused string `json:"refused,omitempty"`
	// Gone: the pod's volumes may be unmounted.
	Gone bool `json:"gone,omitempty"`
}

// told is the desired state, which tells what it is given.
type told struct {
	cache.DesiredStateOfWorld
	mu   sync.Mutex
	out  *json.Encoder
	last map[types.UID]string // the refusal told last, of each pod
}

func tell(state cache.DesiredStateOfWorld, out io.Writer) *told {
	return &told{DesiredStateOfWorld: state, out: json.NewEncoder(out), last: map[types.UID]string{}}
}

func (t *told) AddPodToVolume(logger klog.Logger, name volumetypes.UniquePodName, pod *corev1.Pod, spec *volume.Spec,
	outer, gid string, contexts []*corev1.SELinuxOptions,
) (corev1.UniqueVolumeName, error) {
	volumeName, err := t.DesiredStateOfWorld.AddPodToVolume(logger, name, pod, spec, outer, gid, contexts)
	if err == nil && spec.PersistentVolume != nil {
		t.say(Line{Pod: pod.UID, Volume: outer, Claim: spec.PersistentVolume.Spec.ClaimRef.UID})
	}
	return volumeName, err
}

func (t *told) AddErrorToPod(name volumetypes.UniquePodName, err string) {
	t.DesiredStateOfWorld.AddErrorToPod(name, err)
	if t.isNews(types.UID(name), err) {
		t.say(Line{Pod: types.UID(name), Refused: err})
	}
}

func (t *told) DeletePodFromVolume(name volumetypes.UniquePodName, volumeName corev1.UniqueVolumeName) {
	t.DesiredStateOfWorld.DeletePodFromVolume(name, volumeName)
	t.say(Line{Pod: types.UID(name), Gone: true})
}

// isNews reports whether a refusal differs from the last one: it comes ten times a
// second.
func (t *told) isNews(pod types.UID, err string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := t.last[pod] != err
	t.last[pod] = err
	return news
}

// say writes one line. Who no longer listens ends the program by its signal.
func (t *told) say(line Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.out.Encode(line)
}
