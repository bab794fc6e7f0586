package lws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
)

const (
	// kindsNamed bounds how many different refusals are told of in full.
	kindsNamed = 3
	// hearing is how long a process that has just begun goes by what an earlier one
	// told was refused: it has not tried yet itself.
	hearing = 30 * time.Second
)

// Refused is a refusal that costs a part of a set only.
type Refused struct {
	// Index is that of the group it is refused for, or identity.NoOrdinal for the
	// set as such.
	Index int
	Refusal
}

// hindered tells what the API server refuses to groups, and of what the set itself
// can do without. Nothing else waits for it.
func (d *setDecision) hindered() {
	d.hindrance = hindrance(d.Refused)
	if d.hindrance != "" {
		d.plan.wait(Wait{Reason: because(CodeRefused, d.hindrance)})
		return
	}
	told, _ := conditionOf(d.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	heard := d.Vigil.Awake.Add(hearing)
	if told.Reason != CodeRefused || !d.StatusWritten.IsZero() || !d.Now.Before(heard) || d.refusal != "" {
		return
	}
	d.hindrance = told.Message
	d.plan.wait(Wait{Reason: because(CodeRefused, d.hindrance), Until: heard})
}

// hindrance says what is refused, to whom, by whom and what would end it. Groups
// that are refused the same thing are told of together.
func hindrance(refused []Refused) string {
	type kind struct {
		Refused
		said  string
		needs []string
	}
	var kinds []*kind
	for _, r := range refused {
		said := form(r.Sentence)
		same := func(k *kind) bool {
			return k.Remedy == r.Remedy && (k.Index < 0) == (r.Index < 0) && k.said == said
		}
		i := slices.IndexFunc(kinds, same)
		if i < 0 {
			i, kinds = len(kinds), append(kinds, &kind{Refused: r, said: said})
		}
		if index := strconv.Itoa(r.Index); !slices.Contains(kinds[i].needs, index) {
			kinds[i].needs = append(kinds[i].needs, index)
		}
	}
	var told []string
	for _, k := range kinds[:min(len(kinds), kindsNamed)] {
		told = append(told, fmt.Sprintf("the API server refuses what %s: %s; %s", needy(k.Index, k.needs), clipped(k.Sentence), k.Remedy))
	}
	if more := len(kinds) - kindsNamed; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(told, "; ")
}

// needy is who needs what is refused.
func needy(first int, groups []string) string {
	switch {
	case first == identity.NoOrdinal:
		return "the set needs"
	case len(groups) == 1:
		return "group " + groups[0] + " needs"
	}
	return "groups " + strings.Join(groups[:min(len(groups), namedAtMost)], ", ") + andMore(len(groups)) + " need"
}

// hinderedBeside is that something is refused to a set all of whose groups are
// ready, such as a Service: it is available, and does not get on. Over, it goes back
// to what the condition says usually.
func (d *setDecision) hinderedBeside(progress []metav1.Condition) []metav1.Condition {
	progressing := string(lwsv1.LeaderWorkerSetProgressing)
	if progress[0].Type != string(lwsv1.LeaderWorkerSetAvailable) {
		return nil
	}
	beside := usual[progressing]
	beside.Status = metav1.ConditionFalse
	told, _ := conditionOf(d.Set.Status.Conditions, progressing)
	switch {
	case d.hindrance != "":
		beside.Reason, beside.Message = CodeRefused, d.hindrance
	case told.Reason != CodeRefused || condition.IsTrue(d.Set.Status.Conditions, progressing):
		return nil
	}
	return []metav1.Condition{beside}
}
