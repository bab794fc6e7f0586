package protect

import (
	"fmt"
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
	if c.unverified() {
		return []Suggestion{{Do: "see that an operator runs, and leads: seconds later the claim says who holds it, or lets itself be deleted"}}
	}
	return []Suggestion{
		{Do: "delete it once nothing holds it: " + lasting(e), Command: "kubectl delete pvc " + on},
		{Do: "or have the operator delete it then", Command: fmt.Sprintf("kubectl annotate pvc %s %s=%s", on, IntentAnnotation, c.Claim.UID)},
	}
}

// lasting is how long a hold lasts that nobody needs any more.
func lasting(e Explanation) string {
	if e.Until != nil {
		return "its hold lasts until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("a hold outlives the last holder by %.0f minutes, unless configured otherwise", Grace.Minutes())
}
