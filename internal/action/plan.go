package action

import "time"

// Plan is what to do now, in order, and what to wait for. The zero value means that the world is in step.
type Plan struct {
	Actions []Action
	Waits   []Wait
}

// Wait is something the plan cannot hasten.
type Wait struct {
	Reason
	// Until is when to look again even if no event comes. Zero means that an event will come.
	Until time.Time
	// Followup is set where it is for what follows once the plan's writes went through:
	// what is refused has a time of its own.
	Followup bool
	// Ordinary is set where the objects that must be gone are the owner's own: each step of a rollout waits for such.
	Ordinary bool
	// Tell, when set, is an event that users are to hear of once.
	Tell *Event
}

// Codes of waits and of the reasons for writes that every wing has. They are stable.
const (
	CodePreviousIncarnation = "WaitingForPreviousIncarnation"
	CodeNameConflict        = "NameConflict"
	CodeGarbage             = "Garbage"
	CodeMissing             = "Missing"
	CodeChanged             = "Changed"
	CodeOrphan              = "Orphan"
	CodeRefused             = "Refused"
	CodeSuperseded          = "Superseded"
	CodeRollout             = "Rollout"
	CodeScaledAway          = "ScaledAway"
)

// Next is how long to wait before looking again without an event: zero when only events matter.
func (p Plan) Next(now time.Time) (next time.Duration) {
	for _, w := range p.Waits {
		if in := max(w.Until.Sub(now), time.Millisecond); !w.Until.IsZero() && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}

// Do appends actions.
func (p *Plan) Do(actions ...Action) { p.Actions = append(p.Actions, actions...) }

// Add appends what another rule decided.
func (p *Plan) Add(other Plan) {
	p.Actions = append(p.Actions, other.Actions...)
	p.Waits = append(p.Waits, other.Waits...)
}

// Wait appends a wait.
func (p *Plan) Wait(w Wait) { p.Waits = append(p.Waits, w) }

// Await waits until a time, or for an event if that is zero.
func (p *Plan) Await(until time.Time, code, sentence string) {
	p.Wait(Wait{Reason: Because(code, sentence), Until: until})
}

// Because returns a reason with a stable code.
func Because(code, sentence string) Reason { return Reason{Code: code, Sentence: sentence} }
