package render

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/pvc"
)

const (
	kindClaimWhy     = "ClaimWhy"
	kindClaimWhyList = "ClaimWhyList"
)

// ClaimWhy is what "why pvc/NAME -o json" prints: why a claim is there, and what
// would change that. The fields of the explanation stand beside these.
type ClaimWhy struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	pvc.Explanation
	// ModeFrom says where the mode was read, or what it was told by.
	ModeFrom string `json:"modeFrom"`
	// Volume is the claim's volume, as far as it is known.
	Volume *Volume `json:"volume,omitempty"`
	// Deletion is what came of a DELETE that was tried and not done; absent unless
	// asked for with --if-deleted.
	Deletion *Deletion `json:"deletion,omitempty"`
	// ReadAt is when reading began, and Live whether it was of the newest there is.
	ReadAt metav1.Time `json:"readAt"`
	Live   bool        `json:"live"`
}

// Volume is the volume of a claim.
type Volume struct {
	Name string `json:"name"`
	// Standing is Bound to the claim, Elsewhere (bound to another, or to none yet) or
	// Gone; absent if it was not read.
	Standing string `json:"standing,omitempty"`
	// ReclaimPolicy is what becomes of the volume; absent if it was not read.
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	Capacity      string `json:"capacity,omitempty"`
}

// Deletion is a DELETE as the API server would answer it.
type Deletion struct {
	// Outcome is Accepted, Refused, NotAllowed or NotTried.
	Outcome string `json:"outcome"`
	// RefusedBy is who refuses: a policy, a webhook.
	RefusedBy string   `json:"refusedBy,omitempty"`
	Message   string   `json:"message,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// ClaimWhyList holds several claims.
type ClaimWhyList struct {
	metav1.TypeMeta `json:",inline"`

	Items []ClaimWhy `json:"items"`
	// Free is how many claims were looked at and left out: nobody uses them.
	Free int `json:"free"`

	// spaces tells whether namespaces differ, and are shown.
	spaces bool
}

// DeepCopyObject implements runtime.Object.
func (c *ClaimWhy) DeepCopyObject() runtime.Object { w := *c; return &w }

// DeepCopyObject implements runtime.Object.
func (l *ClaimWhyList) DeepCopyObject() runtime.Object { w := *l; return &w }

// Claim reports on one claim. attempt may be nil.
func Claim(found *inquiry.Found, attempt *inquiry.Attempt) *ClaimWhy {
	c := &ClaimWhy{
		TypeMeta: kind(kindClaimWhy), Namespace: found.Claim.Namespace, Name: found.Claim.Name,
		Explanation: pvc.Why(found.Case), ModeFrom: found.ModeFrom, Volume: volume(found),
		ReadAt: metav1.NewTime(found.World.At.UTC().Truncate(time.Second)), Live: found.World.Live,
	}
	if attempt != nil {
		c.Deletion = &Deletion{Outcome: string(attempt.Outcome), RefusedBy: attempt.By, Message: attempt.Message, Warnings: attempt.Warnings}
	}
	return c
}

func volume(found *inquiry.Found) *Volume {
	if found.Claim.Spec.VolumeName == "" {
		return nil
	}
	v := &Volume{Name: found.Claim.Spec.VolumeName}
	if size, ok := found.Claim.Status.Capacity["storage"]; ok {
		v.Capacity = size.String()
	}
	switch {
	case found.VolumeGone:
		v.Standing = volumeGone
	case found.Volume == nil:
		return v
	case found.VolumeIsAnothers():
		v.Standing = volumeElsewhere
	default:
		v.Standing = volumeBound
	}
	if found.Volume != nil {
		v.ReclaimPolicy = string(found.Volume.Spec.PersistentVolumeReclaimPolicy)
	}
	return v
}

// How a volume stands to the claim that names it.
const (
	volumeBound     = "Bound"
	volumeElsewhere = "Elsewhere"
	volumeGone      = "Gone"
)

// Claims reports on several.
func Claims(all []*ClaimWhy) *ClaimWhyList {
	l := &ClaimWhyList{TypeMeta: kind(kindClaimWhyList), Items: []ClaimWhy{}}
	for _, c := range all {
		l.Items = append(l.Items, *c)
	}
	return l
}

// Overview reports on those that anybody uses, that are on their way out, or that
// nobody can tell of, and counts the others. Those that wait to go come first, the oldest
// before the others.
func Overview(all []*ClaimWhy, spaces bool) *ClaimWhyList {
	l := Claims(nil)
	l.spaces = spaces
	for _, c := range all {
		if c.State == pvc.Free && len(c.Holders) == 0 {
			l.Free++
			continue
		}
		l.Items = append(l.Items, *c)
	}
	slices.SortStableFunc(l.Items, urgency)
	return l
}

// urgency puts what waits to go before what is refused, and that before the rest.
func urgency(a, b ClaimWhy) int {
	rank := func(c ClaimWhy) int {
		switch {
		case c.AskedBy != "":
			return 0
		case c.Refused:
			return 1
		}
		return 2
	}
	if order := rank(a) - rank(b); order != 0 {
		return order
	}
	if rank(a) > 0 || a.Since == nil || b.Since == nil {
		return 0
	}
	return a.Since.Compare(*b.Since)
}
