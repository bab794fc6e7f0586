package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/lws"
)

// SetHistory is what "rollout history -o json" prints.
type SetHistory struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Paused reports whether the set's rollout is paused.
	Paused bool `json:"paused,omitempty"`
	// Waiting is what the spec says and no revision does; absent when one does.
	Waiting []Change `json:"waiting,omitempty"`
	// Revisions are those that are kept, by rising number.
	Revisions []Revision `json:"revisions"`
}

// Revision is one template that groups were rolled to.
type Revision struct {
	// Number rises with every rollout: to an earlier template, too.
	Number int64 `json:"number"`
	// Key is the hash that pods of the revision bear as a label.
	Key  string `json:"key"`
	Name string `json:"name"`
	// CreatedAt is when a template was first rolled out.
	CreatedAt metav1.Time `json:"createdAt"`
	// Groups run it, surge groups included.
	Groups int `json:"groups"`
	// Current is set on the revision that groups are to be at.
	Current bool `json:"current,omitempty"`
	// Cause is the change cause that the set bore.
	Cause string `json:"cause,omitempty"`
	// Changes are against the revision before it of those that are kept.
	Changes []Change `json:"changes,omitempty"`
	// Unreadable says why the revision cannot be read.
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

// History puts the revisions of a surveyed set, by rising number, into a history.
func History(s survey.Survey, revisions []*appsv1.ControllerRevision) *SetHistory {
	set := s.Set.Set
	h := &SetHistory{TypeMeta: kind(kindHistory), Namespace: set.Namespace, Name: set.Name, Paused: lws.Paused(set), Revisions: []Revision{}}
	var before, current map[string]any
	for _, stored := range revisions {
		r := revisionOf(s, stored)
		said, err := content(set, stored.Data.Raw)
		if err != nil {
			r.Unreadable = err.Error()
		} else if before != nil {
			r.Changes = changes("", before, said)
		}
		if before = said; r.Current {
			current = said
		}
		h.Revisions = append(h.Revisions, r)
	}
	if live, err := contentOf(set); err == nil && current != nil && !isSaid(s, revisions) {
		h.Waiting = changes("", current, live)
	}
	return h
}

// isSaid reports whether a revision holds the template of the spec. VolumeClaimTemplates never wait for
// a revision.
func isSaid(s survey.Survey, revisions []*appsv1.ControllerRevision) bool {
	return slices.ContainsFunc(revisions, func(r *appsv1.ControllerRevision) bool {
		return r.Labels[lwsv1.RevisionKey] == s.Standing.Key && lws.Agrees(s.Set.Set, r.Data.Raw)
	})
}

func revisionOf(s survey.Survey, stored *appsv1.ControllerRevision) Revision {
	key := stored.Labels[lwsv1.RevisionKey]
	return Revision{
		Number: stored.Revision, Key: key, Name: stored.Name, CreatedAt: stored.CreationTimestamp,
		Groups: at(s, stored), Current: key == s.Standing.Key,
		Cause: stored.Annotations[lws.ChangeCauseAnnotationKey],
	}
}

// RevisionOf is one revision of a surveyed set whole, or an error that says which
// there are.
func RevisionOf(s survey.Survey, revisions []*appsv1.ControllerRevision, number int64) (*SetRevision, error) {
	all := History(s, revisions)
	for i, stored := range revisions {
		if stored.Revision != number {
			continue
		}
		said, err := content(s.Set.Set, stored.Data.Raw)
		if err != nil {
			return nil, fmt.Errorf("revision %d: %w", number, err)
		}
		return &SetRevision{TypeMeta: kind(kindRevision), Namespace: all.Namespace, Set: all.Name, Revision: all.Revisions[i], Spec: said}, nil
	}
	return nil, NoSuchRevision(all.Name, revisions, number)
}

// NoSuchRevision says that there is no revision of a number, and which there are.
func NoSuchRevision(set string, revisions []*appsv1.ControllerRevision, number int64) error {
	var numbers []string
	for _, r := range revisions {
		numbers = append(numbers, strconv.FormatInt(r.Revision, 10))
	}
	if len(numbers) == 0 {
		return fmt.Errorf("leaderworkerset %q has no revision %d, nor any other yet", set, number)
	}
	return fmt.Errorf("leaderworkerset %q has no revision %d; there are: %s", set, number, strings.Join(numbers, ", "))
}

// WriteText writes the history as a table. Ages are those at now.
func (h *SetHistory) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	fmt.Fprintf(&text, "leaderworkerset %s in namespace %s: %s", h.Name, h.Namespace, counted(len(h.Revisions), "revision"))
	if h.Paused {
		text.WriteString(", rollout paused")
	}
	text.WriteString("\n\n")
	table := newTable(&text, "REVISION", "GROUPS", "AGE", "CHANGE-CAUSE", "CHANGED")
	for _, r := range h.Revisions {
		number := strconv.FormatInt(r.Number, 10)
		if r.Current {
			number += " (current)"
		}
		row(table, number, strconv.Itoa(r.Groups), age(&r.CreatedAt, now), dash(r.Cause), changed(r))
	}
	table.Flush()
	if len(h.Waiting) > 0 {
		fmt.Fprintf(&text, "\nin no revision yet: %s\nsee: kubectl lockstep rollout diff %s -n %s\n", fewChanges(h.Waiting), h.Name, h.Namespace)
	}
	return show(out, text.String())
}

func changed(r Revision) string {
	if r.Unreadable != "" {
		return "cannot be read: " + r.Unreadable
	}
	return fewChanges(r.Changes)
}

// fewChanges shows the first changes.
func fewChanges(all []Change) string {
	const atMost = 2
	var shown []string
	for _, c := range all[:min(len(all), atMost)] {
		shown = append(shown, c.String())
	}
	text := dash(strings.Join(shown, "; "))
	if more := len(all) - atMost; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// WriteText writes the revision with its template.
func (r *SetRevision) WriteText(out io.Writer, now time.Time) error {
	said, err := yaml.Marshal(r.Spec)
	if err != nil {
		return fmt.Errorf("encode revision: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "leaderworkerset %s in namespace %s, revision %d (%s), first rolled out %s ago, run by %s\n",
		r.Set, r.Namespace, r.Number, r.Key, age(&r.CreatedAt, now), counted(r.Groups, "group"))
	if r.Cause != "" {
		fmt.Fprintf(&text, "change cause: %s\n", inLine(r.Cause))
	}
	fmt.Fprintf(&text, "\n%s", said)
	return show(out, text.String())
}
