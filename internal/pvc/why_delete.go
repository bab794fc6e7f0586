package pvc

import (
	"fmt"
	"slices"
	"time"
)

// deletion is how the deletion of a claim is asked for that refuses it now: after
// all that is to be done, or so that nobody has to come back for it.
func (c Case) deletion(e Explanation) []Suggestion {
	asked := c.Claim.UID != "" && c.Claim.Annotations[IntentAnnotation] == string(c.Claim.UID)
	if !e.Refused || asked || c.NamespaceEnding {
		return nil
	}
	on := c.Claim.Name + " -n " + c.Claim.Namespace
	switch {
	case c.unverified():
		return []Suggestion{{Do: "see that an operator runs, and leads: seconds later the claim says who holds it, or lets itself be deleted"}}
	case c.isUnconfirmed(e) && c.blind(): // whom the words name may need it still
		return []Suggestion{{Do: "see that an operator runs, leads and can read all that may hold it: it lets go of what nobody holds any more"}}
	case c.isUnconfirmed(e):
		return []Suggestion{
			{Do: "see that an operator runs, and leads: it lets go of what nobody holds any more"},
			{Do: "or have its deletion let through without one", Command: ReleaseCommand(c.Claim)},
		}
	}
	return []Suggestion{
		{Do: "delete it once nothing holds it: " + lasting(e), Command: "kubectl delete pvc " + on},
		{Do: "or have the operator delete it then", Command: fmt.Sprintf("kubectl annotate pvc %s %s=%s", on, IntentAnnotation, c.Claim.UID)},
	}
}

// After how long words that nobody confirmed, or ended, tell of an operator that
// is not there: it confirms them every hour, and ends a hold when it is to end.
const (
	confirmedLate = 2 * time.Hour
	endedLate     = time.Minute
)

// isUnconfirmed tells whether words refuse a DELETE for somebody who is not found, and that
// an operator would have confirmed, or taken away, by now.
func (c Case) isUnconfirmed(e Explanation) bool {
	isFound := func(h Explained) bool { return h.Reason != Stated }
	switch {
	case !e.Refused || c.terminating() || slices.ContainsFunc(e.Holders, isFound):
		return false
	case e.State == Cooling:
		return e.Until != nil && c.Now.Sub(*e.Until) > endedLate
	}
	return e.VerifiedAt != nil && c.Now.Sub(*e.VerifiedAt) > confirmedLate
}

// lasting is how long a hold lasts that nobody needs any more.
func lasting(e Explanation) string {
	if e.Until != nil {
		return "its hold lasts until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("a hold outlives the last holder by %.0f minutes, unless configured otherwise", Grace.Minutes())
}
