package pvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/identity"
)

// summary is one sentence whose subject is the PVC.
func (c Case) summary(e Explanation) string {
	unscheduled := namedHolders(plain(e.Holders))
	switch {
	case c.terminating():
		return c.terminatingSummary(e)
	case e.State == Cooling:
		return "was in use by " + said(ParseWords(c.Claim.Annotations[HoldersAnnotation]).Names) + "; a DELETE is " +
			verdict(e) + ", until " + e.Until.UTC().Format(time.RFC3339)
	case e.State == Unknown:
		return "may be in use: " + unreadNames(c.Unread) + " could not be read"
	case e.State == Held || len(holding(e)) > 0:
		return c.inUse(e)
	case unscheduled != "":
		return "is not in use: a DELETE removes it " + removedWhen(e) + "; " + unscheduled + ", not scheduled, would stay Pending"
	}
	return "is not in use: a DELETE removes it " + removedWhen(e)
}

func verdict(e Explanation) string {
	if e.Refused {
		return "refused"
	}
	return "accepted"
}

// removedWhen is when a PVC without holders is removed.
func removedWhen(e Explanation) string {
	if len(e.Foreign()) > 0 {
		return "once other finalizers are removed"
	}
	return "at once"
}

func (c Case) terminatingSummary(e Explanation) string {
	keeping, text := keepers(e), "is being deleted"
	_, due := c.due()
	switch {
	case len(keeping) > 0:
		text = staysUntil(keeping)
	case c.blind():
		text += "; " + unreadNames(c.Unread) + " could not be read, and may hold it"
	case c.annotationsKeepFinalizers():
		text += "; its annotation " + HoldersAnnotation + " keeps its finalizers"
	case c.unreadableRecord() != nil:
		text += ", and stays: its use record cannot be read"
	case !due && len(e.Foreign()) > 0:
		text += ", and stays until other finalizers are removed"
	case due && c.late():
		f, _ := c.due()
		text += "; nothing holds it, and " + f.Owner + " has not removed " + f.Key
	default:
		text += "; nothing holds it"
	}
	if names := wanting(plain(e.Holders)); len(names) > 0 {
		text += "; " + stillWant(names)
	}
	return text
}

// staysUntil is said of a terminating PVC in use: here, and in an event on it.
func staysUntil(names []string) string {
	return "is being deleted, and stays until " + and(names) + " end" + third(names)
}

// stillWant is said of workloads that cannot use the PVC any more: here, and in an event
// on it.
func stillWant(names []string) string {
	return and(names) + " want" + third(names) + " it, and cannot start a pod on it"
}

// keepers are the holders of a terminating PVC, pods with their nodes.
func keepers(e Explanation) (names []string) {
	for _, h := range e.Holders {
		switch {
		case h.Holds && h.Reason == BoundPod:
			names = append(names, onNode(h.Object, h.Node))
		case h.Holds:
			names = append(names, h.Name)
		}
	}
	return names
}

func onNode(pod identity.Ref, node string) string { return fmt.Sprintf("%s on node %s", pod, node) }

func (c Case) inUse(e Explanation) string {
	holders := plain(e.Holders)
	text := "is in use by " + cmp.Or(namedHolders(told(holders)), namedHolders(holders))
	if len(holders) == 0 {
		text = "was not checked by an operator yet"
	}
	keeping := holding(e)
	switch {
	case e.Refused:
		return text + ": a DELETE is refused"
	case len(keeping) > 0:
		return text + ": a DELETE is accepted, and the PVC stays until " + and(keeping) + " end" + third(keeping)
	case c.blind():
		return text + ": a DELETE is accepted; " + unreadNames(c.Unread) + " could not be read, and may keep it"
	}
	return text + ": a DELETE is accepted, and removes the PVC " + removedWhen(e)
}

// holding are the holders that keep the PVC.
func holding(e Explanation) (names []string) {
	for _, h := range e.Holders {
		if h.Holds {
			names = append(names, h.Name)
		}
	}
	return names
}

// wanting are the workloads that want a PVC.
func wanting(holders []Holder) (names []string) {
	for _, h := range holders {
		if h.Reason == DesiredState {
			names = append(names, h.Name)
		}
	}
	return names
}

func plain(explained []Explained) (holders []Holder) {
	for _, h := range explained {
		holders = append(holders, h.Holder)
	}
	return holders
}

func unreadNames(unread []Unread) string {
	var names []string
	for _, u := range unread {
		if u.MayHold {
			names = append(names, u.What)
		}
	}
	return and(names)
}

// and joins the first few names.
func and(names []string) string {
	joined := named(slices.Clone(names))
	if i := strings.LastIndex(joined, ", "); i >= 0 {
		last := joined[i+2:]
		if more, counted := strings.CutPrefix(last, "+"); counted {
			last = more + " more"
		}
		return joined[:i] + " and " + last
	}
	return joined
}

// third is the ending of a verb.
func third(subjects []string) string {
	if len(subjects) == 1 {
		return "s"
	}
	return ""
}
