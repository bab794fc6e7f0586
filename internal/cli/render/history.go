package render

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// SetHistory is what "rollout history -o json" prints.
type SetHistory struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Paused reports whether the set's rollout is paused.
	Paused bool `json:"paused,omitempty"`
	// Waiting is what the spec changes against the current revision; absent if it is rolled out.
	Waiting []Change `json:"waiting,omitempty"`
	// Revisions are ordered by rising number.
	Revisions []Revision `json:"revisions"`
}

// Revision is one template that groups were rolled to.
type Revision struct {
	// Number rises with every rollout, also with one to an earlier template.
	Number int64 `json:"number"`
	// Key is the hash that pods of the revision have as a label.
	Key  string `json:"key"`
	Name string `json:"name"`
	// CreatedAt is when the template was first rolled out.
	CreatedAt metav1.Time `json:"createdAt"`
	// Groups run it, surge groups included.
	Groups int `json:"groups"`
	// Current is set on the target revision of the groups.
	Current bool `json:"current,omitempty"`
	// Cause is the change cause that the set had.
	Cause string `json:"cause,omitempty"`
	// Changes are against the revision before it in the list.
	Changes []Change `json:"changes,omitempty"`
	// Unreadable is why the revision cannot be decoded.
	Unreadable string `json:"unreadable,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (h *SetHistory) DeepCopyObject() runtime.Object { c := *h; return &c }

// History returns the history of a set from its revisions by rising number.
func History(s clilws.Survey, revisions []*appsv1.ControllerRevision) *SetHistory {
	set := s.Set.Set
	h := &SetHistory{TypeMeta: kind("SetHistory"), Namespace: set.Namespace, Name: set.Name, Paused: lws.Paused(set), Revisions: []Revision{}}
	var before, current map[string]any
	for _, stored := range revisions {
		r := revisionOf(s, stored)
		spec, err := content(set, stored.Data.Raw)
		if err != nil {
			r.Unreadable = err.Error()
		} else if before != nil {
			r.Changes = changes(before, spec)
		}
		if before = spec; r.Current && !revision.Agrees(set, stored.Data.Raw) {
			current = spec
		}
		h.Revisions = append(h.Revisions, r)
	}
	if spec, err := contentOf(set, revisions, Live); err == nil && current != nil {
		h.Waiting = changes(current, spec)
	}
	return h
}

func revisionOf(s clilws.Survey, stored *appsv1.ControllerRevision) Revision {
	key := stored.Labels[lwsv1.RevisionKey]
	return Revision{
		Number: stored.Revision, Key: key, Name: stored.Name, CreatedAt: stored.CreationTimestamp,
		Groups: groupsAt(s, key), Current: key == s.Standing.Key,
		Cause: stored.Annotations[revision.ChangeCauseAnnotationKey],
	}
}

// groupsAt returns how many groups run a revision.
func groupsAt(s clilws.Survey, key string) int {
	groups := 0
	for i := range s.Groups {
		if leader := s.Groups[i].Leader; leader != nil && leader.Labels[lwsv1.RevisionKey] == key {
			groups++
		}
	}
	return groups
}

// write writes the history as a table.
func (h *SetHistory) write(p *page) {
	paused := ""
	if h.Paused {
		paused = ", rollout paused"
	}
	p.linef("leaderworkerset %s in namespace %s: %s%s", h.Name, h.Namespace, counted(len(h.Revisions), "revision"), paused)
	var rows []row
	for _, r := range h.Revisions {
		number := fmt.Sprint(r.Number)
		if r.Current {
			number += " (current)"
		}
		rows = append(rows, row{number, r.Groups, p.age(&r.CreatedAt), r.Cause})
	}
	p.table(row{"REVISION", "GROUPS", "AGE", "CHANGE-CAUSE"}, rows)
}
