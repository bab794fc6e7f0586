package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
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

// SetRevision is what "rollout history --revision -o json" prints.
type SetRevision struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Set       string `json:"set"`
	Revision  `json:",inline"`
	// Spec is the part of the set's spec that the revision holds.
	Spec map[string]any `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (h *SetHistory) DeepCopyObject() runtime.Object { c := *h; return &c }

// DeepCopyObject implements runtime.Object.
func (r *SetRevision) DeepCopyObject() runtime.Object { c := *r; return &c }

// History returns the history of a set from its revisions by rising number.
func History(s clilws.Survey, revisions []*appsv1.ControllerRevision) *SetHistory {
	set := s.Set.Set
	h := &SetHistory{TypeMeta: kind(kindHistory), Namespace: set.Namespace, Name: set.Name, Paused: lws.Paused(set), Revisions: []Revision{}}
	var before, current map[string]any
	for _, stored := range revisions {
		r := revisionOf(s, stored)
		spec, err := content(set, stored.Data.Raw)
		if err != nil {
			r.Unreadable = err.Error()
		} else if before != nil {
			r.Changes = changes(before, spec)
		}
		if before = spec; r.Current && !lws.Agrees(set, stored.Data.Raw) {
			current = spec
		}
		h.Revisions = append(h.Revisions, r)
	}
	if spec, err := contentOf(set); err == nil && current != nil {
		h.Waiting = changes(current, spec)
	}
	return h
}

func revisionOf(s clilws.Survey, stored *appsv1.ControllerRevision) Revision {
	key := stored.Labels[lwsv1.RevisionKey]
	return Revision{
		Number: stored.Revision, Key: key, Name: stored.Name, CreatedAt: stored.CreationTimestamp,
		Groups: groupsAt(s, key), Current: key == s.Standing.Key,
		Cause: stored.Annotations[lws.ChangeCauseAnnotationKey],
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

// RevisionOf returns one revision with its template.
func RevisionOf(s clilws.Survey, revisions []*appsv1.ControllerRevision, number int64) (*SetRevision, error) {
	set := s.Set.Set
	i := indexOf(revisions, number)
	if i < 0 {
		return nil, clilws.NoSuchRevision(set.Name, revisions, number)
	}
	spec, err := content(set, revisions[i].Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w", number, err)
	}
	return &SetRevision{TypeMeta: kind(kindRevision), Namespace: set.Namespace, Set: set.Name, Revision: History(s, revisions).Revisions[i], Spec: spec}, nil
}

// WriteText writes the history as a table. Ages are those at now.
func (h *SetHistory) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	fmt.Fprintf(&text, "leaderworkerset %s in namespace %s: %s", h.Name, h.Namespace, counted(len(h.Revisions), "revision"))
	if h.Paused {
		text.WriteString(", rollout paused")
	}
	text.WriteString("\n\n")
	table := newTable(&text, "REVISION", "GROUPS", "AGE", "CHANGE-CAUSE")
	for _, r := range h.Revisions {
		number := strconv.FormatInt(r.Number, 10)
		if r.Current {
			number += " (current)"
		}
		row(table, number, strconv.Itoa(r.Groups), age(&r.CreatedAt, now), dash(r.Cause))
	}
	table.Flush()
	return show(out, text.String())
}

// WriteText writes the revision with its template.
func (r *SetRevision) WriteText(out io.Writer, now time.Time) error {
	spec, err := yaml.Marshal(r.Spec)
	if err != nil {
		return fmt.Errorf("encode revision: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "leaderworkerset %s in namespace %s, revision %d (%s), first rolled out %s ago, run by %s\n",
		r.Set, r.Namespace, r.Number, r.Key, age(&r.CreatedAt, now), counted(r.Groups, "group"))
	if r.Cause != "" {
		fmt.Fprintf(&text, "change cause: %s\n", inLine(r.Cause))
	}
	fmt.Fprintf(&text, "\n%s", spec)
	return show(out, text.String())
}
