package render

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/pvc"
)

// ClaimWhy is what "why pvc/NAME -o json" prints. The fields of the explanation stand
// beside these.
type ClaimWhy struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	pvc.Explanation
	// ModeFrom says where the mode was read.
	ModeFrom string `json:"modeFrom"`
	// Volume is the volume of the PVC.
	Volume *Volume `json:"volume,omitempty"`
	// Deletion is the answer to a DELETE as a dry run, with --if-deleted.
	Deletion *Deletion `json:"deletion,omitempty"`
	// AskedBy is "unknown" for a terminating PVC: the object does not record the user.
	AskedBy string `json:"askedBy,omitempty"`
	// ReadAt is when the read began. Live is always true.
	ReadAt metav1.Time `json:"readAt"`
	Live   bool        `json:"live"`
}

// Deletion is the API server's answer to a DELETE of a PVC.
type Deletion struct {
	// Outcome is Accepted or Refused.
	Outcome string `json:"outcome"`
	// Message is the reason of a refusal, as the API server gives it.
	Message string `json:"message,omitempty"`
}

// Outcomes of a DELETE.
const (
	Accepted = "Accepted"
	Refused  = "Refused"
)

// Volume is the volume of a PVC.
type Volume struct {
	Name string `json:"name"`
	// Standing is Bound to the PVC, Elsewhere or Gone; absent if it was not read.
	Standing      string `json:"standing,omitempty"`
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	Capacity      string `json:"capacity,omitempty"`
}

// ClaimWhyList holds several PVCs.
type ClaimWhyList struct {
	metav1.TypeMeta `json:",inline"`

	Items []ClaimWhy `json:"items"`
	// Free is how many PVCs are not in use, and left out.
	Free int `json:"free"`
}

// DeepCopyObject implements runtime.Object.
func (c *ClaimWhy) DeepCopyObject() runtime.Object { w := *c; return &w }

// DeepCopyObject implements runtime.Object.
func (l *ClaimWhyList) DeepCopyObject() runtime.Object { w := *l; return &w }

// Claim reports on one PVC.
func Claim(found *clipvc.Found) *ClaimWhy {
	c := &ClaimWhy{
		TypeMeta: kind("ClaimWhy"), Namespace: found.Claim.Namespace, Name: found.Claim.Name,
		Explanation: pvc.Why(found.Case), ModeFrom: found.ModeFrom, Volume: volume(found),
		ReadAt: metav1.NewTime(found.Now.UTC().Truncate(time.Second)), Live: true,
	}
	if c.terminating() {
		c.AskedBy = "unknown"
	}
	return c
}

func volume(found *clipvc.Found) *Volume {
	if found.Claim.Spec.VolumeName == "" {
		return nil
	}
	v := &Volume{Name: found.Claim.Spec.VolumeName}
	if size, ok := found.Claim.Status.Capacity["storage"]; ok {
		v.Capacity = size.String()
	}
	if found.Volume != nil {
		v.Standing, v.ReclaimPolicy = volumeBound, string(found.Volume.Spec.PersistentVolumeReclaimPolicy)
	}
	switch {
	case found.VolumeGone:
		v.Standing = volumeGone
	case found.VolumeIsAnothers():
		v.Standing = volumeElsewhere
	}
	return v
}

// The relation of a volume to the PVC that names it.
const (
	volumeBound     = "Bound"
	volumeElsewhere = "Elsewhere"
	volumeGone      = "Gone"
)

// Claims reports on several PVCs.
func Claims(all []*ClaimWhy) *ClaimWhyList {
	l := &ClaimWhyList{TypeMeta: kind("ClaimWhyList"), Items: []ClaimWhy{}}
	for _, c := range all {
		l.Items = append(l.Items, *c)
	}
	return l
}

// Overview reports on PVCs that are in use, terminating or unknown, and counts the rest.
// Terminating PVCs come first, then those that refuse a DELETE.
func Overview(all []*ClaimWhy) *ClaimWhyList {
	l := Claims(nil)
	for _, c := range all {
		if c.State == pvc.Free && len(c.Holders) == 0 {
			l.Free++
			continue
		}
		l.Items = append(l.Items, *c)
	}
	slices.SortStableFunc(l.Items, func(a, b ClaimWhy) int { return a.rank() - b.rank() })
	return l
}

func (c ClaimWhy) rank() int {
	switch {
	case c.terminating():
		return 0
	case c.Refused:
		return 1
	}
	return 2
}

func (c ClaimWhy) terminating() bool { return c.State == pvc.Draining || c.State == pvc.Doomed }
