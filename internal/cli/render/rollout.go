package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/diff"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Rollout is the state that "rollout status" prints.
type Rollout struct {
	// Done is set when every group of the target is updated and ready, and no surge group is left.
	Done bool
	// Number is that of the target revision, or 0 until the operator has observed the spec: a rollback
	// gives a revision a new number.
	Number int64
	// Message is one line: the next wait, or that the rollout is done.
	Message string
	// Failed is set once the progress deadline of the set is over. The message says why.
	Failed bool
}

// RolloutOf returns how far a rollout has come.
func RolloutOf(s clilws.Survey) Rollout {
	r := Rollout{}
	if observed(s) {
		r.Number = numberOf(s, s.Standing.Key)
	}
	if r.Message = page.Plain(nextWait(s)); r.Message == "" {
		r.Done, r.Message = true, done(s, r.Number)
	}
	over := meta.FindStatusCondition(s.Set.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetStalled))
	if !r.Done && observed(s) && over != nil && over.Reason == lws.CodeProgressDeadlineExceeded {
		r.Failed, r.Message = true, page.Plain(over.Reason+": "+over.Message)
	}
	if s.Unattended != nil {
		r.Message += "; " + s.Unattended.Sentence
	}
	return r
}

// numberOf returns the number of the revision with a key, or 0.
func numberOf(s clilws.Survey, key string) (number int64) {
	for _, r := range s.Set.Revisions.Owned {
		if key != "" && r.Labels[lwsv1.RevisionKey] == key {
			number = max(number, r.Revision)
		}
	}
	return number
}

func observed(s clilws.Survey) bool {
	return s.Set.Set.Status.ObservedGeneration >= s.Set.Set.Generation
}

// nextWait returns what a rollout waits for first, or is empty when it is done. A refusal below the
// partition does not delay a rollout.
func nextWait(s clilws.Survey) string {
	wait := standingWait(s)
	progressing := meta.FindStatusCondition(s.Set.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	if wait != "" && progressing != nil && progressing.Status == metav1.ConditionTrue && progressing.Reason == lws.CodeRefused {
		return "waiting: " + progressing.Message
	}
	return wait
}

func standingWait(s clilws.Survey) string {
	set, standing := s.Set.Set, s.Standing
	target := page.Counted(int(standing.Target), "group")
	switch {
	case !observed(s):
		return fmt.Sprintf("waiting for the operator to observe generation %d of %s", set.Generation, set.Name)
	case lws.Paused(set) && (standing.Pending || standing.TargetUpdated < standing.Target):
		return "waiting: " + planWait(s, "the rollout is paused", lws.CodePaused, lws.CodeRevisionNotVisible)
	case standing.Pending:
		return "waiting: " + planWait(s, "the revision is pending", lws.CodeVolumeClaimsDiffer)
	case planWait(s, "", lws.CodePreviousIncarnation, lws.CodeNameConflict) != "":
		return "waiting: " + planWait(s, "", lws.CodePreviousIncarnation, lws.CodeNameConflict)
	case standing.TargetUpdated < standing.Target:
		return fmt.Sprintf("waiting for %d of %s to be updated", standing.Target-standing.TargetUpdated, target)
	case standing.TargetReady < standing.Target:
		return fmt.Sprintf("waiting for %d of %s to be ready", standing.Target-standing.TargetReady, target)
	case standing.Surge > 0:
		return fmt.Sprintf("waiting for %s to be deleted", page.Counted(int(standing.Surge), "surge group"))
	}
	return ""
}

// planWait returns the first wait of the set's plan with one of the reasons, or else the text. An ordinary step of a
// rollout is none.
func planWait(s clilws.Survey, text string, codes ...string) string {
	for _, w := range s.Plan.Waits {
		if slices.Contains(codes, w.Code) && !w.Ordinary {
			return w.Sentence
		}
	}
	return text
}

// done returns the sentence that a rollout is over. Scripts search for this text.
func done(s clilws.Survey, number int64) string {
	set := s.Set.Set
	if s.Standing.Target < workload.Replicas(set) {
		return fmt.Sprintf("partitioned roll out complete: %s of leaderworkerset %q have been updated, %d are kept below the partition",
			page.Counted(int(s.Standing.Target), "group"), set.Name, workload.Replicas(set)-s.Standing.Target)
	}
	return fmt.Sprintf("leaderworkerset %q successfully rolled out: %s at revision %s",
		set.Name, page.Counted(int(workload.Replicas(set)), "group"), revision.Title(number, s.Standing.Key))
}

// SetHistory is what "rollout history -o json" prints.
type SetHistory struct {
	metav1.TypeMeta `json:",inline"`

	// Noun is the kind of set, for people.
	Noun      string `json:"-"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Paused reports whether the set's rollout is paused.
	Paused bool `json:"paused,omitempty"`
	// Waiting lists the changes of the spec since the current revision; absent if it is rolled out.
	Waiting []diff.Change `json:"waiting,omitempty"`
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
	Changes []diff.Change `json:"changes,omitempty"`
	// Unreadable is why the revision cannot be decoded.
	Unreadable string `json:"unreadable,omitempty"`
}

// History returns the history of a set from its revisions by rising number.
func History(s clilws.Survey, revisions []*appsv1.ControllerRevision) *SetHistory {
	set := s.Set.Set
	h := &SetHistory{TypeMeta: page.Kind("SetHistory"), Namespace: set.Namespace, Name: set.Name, Paused: lws.Paused(set), Revisions: []Revision{}}
	var before, current map[string]any
	for _, stored := range revisions {
		r := revisionOf(s, stored)
		spec, err := content(set, stored.Data.Raw)
		if err != nil {
			r.Unreadable = err.Error()
		} else if before != nil {
			r.Changes = diff.Changes(before, spec)
		}
		if before = spec; r.Current && !revision.Agrees(set, stored.Data.Raw) {
			current = spec
		}
		h.Revisions = append(h.Revisions, r)
	}
	_, data, _ := sideOf(set, revisions, Live) // without data there is no content
	if spec, err := content(set, data); err == nil && current != nil {
		h.Waiting = diff.Changes(current, spec)
	}
	return h
}

func revisionOf(s clilws.Survey, stored *appsv1.ControllerRevision) Revision {
	key := stored.Labels[lwsv1.RevisionKey]
	atRevision := only(s.Groups, func(g clilws.Group) bool { return g.Leader != nil && g.Leader.Labels[lwsv1.RevisionKey] == key })
	return Revision{
		Number: stored.Revision, Key: key, Name: stored.Name, CreatedAt: stored.CreationTimestamp,
		Groups: len(atRevision), Current: key == s.Standing.Key,
		Cause: stored.Annotations[revision.ChangeCauseAnnotationKey],
	}
}

// Write writes the history as a table.
func (h *SetHistory) Write(p *page.Page) {
	paused := ""
	if h.Paused {
		paused = ", rollout paused"
	}
	p.Linef("%s %s in namespace %s: %s%s", cmp.Or(h.Noun, "leaderworkerset"), h.Name, h.Namespace, page.Counted(len(h.Revisions), "revision"), paused)
	var rows []page.Row
	for _, r := range h.Revisions {
		number := revision.Title(r.Number, r.Key)
		if r.Current {
			number += " (current)"
		}
		rows = append(rows, page.Row{number, r.Groups, p.Age(&r.CreatedAt), r.Cause})
	}
	p.Table(page.Row{"REVISION", "GROUPS", "AGE", "CHANGE-CAUSE"}, rows)
}

// Live stands for the set's spec in place of a revision's number.
const Live int64 = 0

// Comparison names the two sides to compare: numbers of revisions, or Live.
type Comparison struct{ From, To int64 }

// UsualComparison is the comparison of a user who names no revision: the change that is not rolled
// out yet, or else the last rollout.
func UsualComparison(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision) (Comparison, error) {
	if len(revisions) == 0 {
		return Comparison{}, fmt.Errorf("leaderworkerset %q has no revision yet", set.Name)
	}
	latest := revisions[len(revisions)-1]
	if len(revisions) == 1 || !revision.Agrees(set, latest.Data.Raw) {
		return Comparison{From: latest.Revision, To: Live}, nil
	}
	return Comparison{From: revisions[len(revisions)-2].Revision, To: latest.Revision}, nil
}

// Compare returns the difference in the format of diff -u; it is empty if there is none.
func Compare(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, c Comparison) (string, error) {
	return diff.Unified(c.From, c.To, func(number int64) (name string, spec any, err error) {
		name, data, err := sideOf(set, revisions, number)
		if err != nil {
			return "", nil, err
		}
		if spec, err = content(set, data); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return name, spec, err
	})
}

// Same returns the sentence that there is no difference.
func Same(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, c Comparison) string {
	from, _, _ := sideOf(set, revisions, c.From)
	to, _, _ := sideOf(set, revisions, c.To)
	return fmt.Sprintf("no difference between %s and %s", from, to)
}

// sideOf returns the name and the data of a revision, or those of the spec.
func sideOf(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, number int64) (name string, data []byte, err error) {
	if number == Live {
		data, err = revision.Data(set)
		return set.Name + " spec", data, err
	}
	found := revision.Latest(revisions, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
	if found == nil {
		return "", nil, undo.NoSuchRevision("leaderworkerset", set.Name, revisions, number)
	}
	return fmt.Sprintf("%s revision %s", set.Name, revision.Title(number, found.Labels[lwsv1.RevisionKey])), found.Data.Raw, nil
}

// content returns the part of the spec that a revision holds.
func content(set *lwsv1.LeaderWorkerSet, data []byte) (map[string]any, error) {
	restored, err := revision.Restore(set, data)
	if err != nil {
		return nil, err
	}
	spec, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&restored.Spec) // it was decoded just now
	maps.DeleteFunc(spec, func(field string, _ any) bool { return field != "leaderWorkerTemplate" && field != "networkConfig" })
	return spec, nil
}
