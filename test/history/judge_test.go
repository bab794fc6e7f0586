package history

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

func claim(at uint64, uid types.UID, edits ...func(*Version)) Version {
	v := Version{At: at, Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: uid, Annotations: map[string]string{}}}}
	for _, edit := range edits {
		edit(&v)
	}
	return v
}

func pod(at uint64, uid types.UID, edits ...func(*Version)) Version {
	v := Version{At: at, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid, Annotations: map[string]string{}}}}
	v.Pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	for _, edit := range edits {
		edit(&v)
	}
	return v
}

func gone(v *Version) { v.Gone = true }
func withGate(v *Version) {
	v.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pvc.UseGate}}
}
func bound(v *Version)   { v.Pod.Spec.NodeName = "n1" }
func deleted(v *Version) { v.Claim.DeletionTimestamp = &metav1.Time{} }
func mounting(uid string) func(*Version) {
	return func(v *Version) { v.Pod.Annotations[mounts+"data"] = uid }
}
func saying(key, value string) func(*Version) {
	return func(v *Version) { v.Claim.Annotations[key] = value }
}

func TestJudge(t *testing.T) {
	onRecord, held := saying(pvc.UsersAnnotation, "web=p"), saying(pvc.HoldersAnnotation, "Pod/web")
	for _, tt := range []struct {
		name     string
		recorded bool
		versions []Version
		want     error
	}{
		{"the pod goes first", false, []Version{claim(1, "c"), pod(2, "p", bound, mounting("c")), pod(3, "p", gone), claim(4, "c", gone)}, nil},
		{"the PVC goes first", false, []Version{claim(1, "c"), pod(2, "p", bound, mounting("c")), claim(3, "c", gone), pod(4, "p", gone)}, ErrLost},
		{"the same, reported in another order", false, []Version{pod(4, "p", gone), claim(3, "c", gone), pod(2, "p", bound, mounting("c")), claim(1, "c")}, ErrLost},
		{"mounted after it is gone", false, []Version{claim(1, "c"), pod(2, "p", bound), claim(3, "c", gone), pod(4, "p", bound, mounting("c"))}, ErrLost},
		{"another PVC of its name", false, []Version{claim(1, "c"), pod(2, "p", bound, mounting("c")), claim(3, "c", gone), claim(3, "d"), pod(4, "p", gone)}, ErrLost},
		{"not mounted", false, []Version{claim(1, "c"), pod(2, "p", bound), claim(3, "c", gone)}, nil},
		{"mounted by an earlier pod of the name", false, []Version{claim(1, "c"), pod(2, "p", bound, mounting("c")), pod(3, "q", bound), claim(4, "c", gone)}, nil},
		{"on record", true, []Version{claim(1, "c", onRecord), pod(2, "p", bound), pod(3, "p", gone), claim(4, "c", gone)}, nil},
		{"not on record", true, []Version{claim(1, "c"), pod(2, "p", bound)}, ErrStray},
		{"bound without a PVC", true, []Version{pod(2, "p", bound)}, ErrStray},
		{"on record too late", true, []Version{claim(1, "c"), pod(2, "p", bound), claim(3, "c", onRecord)}, ErrStray},
		{"an earlier pod of the name is on record", true, []Version{claim(1, "c", saying(pvc.UsersAnnotation, "web=o")), pod(2, "p", bound)}, ErrStray},
		{"gone before the mount", true, []Version{claim(1, "c", onRecord), pod(2, "p", bound), claim(3, "c", gone)}, ErrStray},
		{"gate removed, on record", true, []Version{pod(1, "p", withGate), claim(2, "c", onRecord), pod(3, "p")}, nil},
		{"gate removed before the record", true, []Version{pod(1, "p", withGate), claim(2, "c"), pod(3, "p"), claim(4, "c", onRecord), pod(5, "p", bound)}, ErrStray},
		{"without use records", false, []Version{claim(1, "c"), pod(2, "p", bound)}, nil},
		{"held and deleted", false, []Version{claim(1, "c", held), claim(2, "c", held, deleted)}, ErrUnheeded},
		{"held while it is deleted", false, []Version{claim(1, "c"), claim(2, "c", deleted), claim(3, "c", held, deleted)}, nil},
		{"released and deleted", false, []Version{claim(1, "c", held, saying(pvc.ReleaseAnnotation, "c")), claim(2, "c", held, deleted)}, nil},
	} {
		if _, err := Judge(tt.versions, tt.recorded); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}
