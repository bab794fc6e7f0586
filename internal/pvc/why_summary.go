package pvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/identity"
)

// summary is the whole in a sentence, whose subject is the claim.
func (c Case) summary(e Explanation) string {
	switch e.State {
	case Draining, Doomed:
		return c.goingAway(e)
	case Cooling:
		if c.isUnconfirmed(e) {
			return "was in use by " + said(ParseWords(c.Claim.Annotations[HoldersAnnotation]).Names) + "; a DELETE is refused still, though its hold was to end at " + e.Until.UTC().Format(time.RFC3339)
		}
		return "was in use by " + said(ParseWords(c.Claim.Annotations[HoldersAnnotation]).Names) + "; a DELETE is " + verdict(e) + ", until " + e.Until.UTC().Format(time.RFC3339)
	case Unknown:
		return "cannot be told to be free: " + unreadNames(c.Unread) + " could not be read"
	case Free:
		return c.free(e)
	}
	return c.inUse(e)
}

func verdict(e Explanation) string {
	if e.Refused {
		return "refused"
	}
	return "not refused"
}

// free is a claim that nothing keeps. Pods that were never bound are stranded
// without it, and keep nothing: anybody could make one.
func (c Case) free(e Explanation) string {
	names := namedHolders(plain(e.Holders))
	switch {
	case len(holding(e)) > 0: // by its use record, a pod may be bound at any moment
		return c.inUse(e)
	case names != "":
		return "is named by " + names + ", which no node has: a DELETE would take it " + taken(e) + ", and strand what names it"
	}
	return "is not in use: a DELETE would take it " + taken(e)
}

// taken is when a claim goes that nobody here holds.
func taken(e Explanation) string {
	if len(e.Foreign()) > 0 {
		return "as soon as the owners of other finalizers let go"
	}
	return "at once"
}

func (c Case) goingAway(e Explanation) string {
	text := "is being deleted, "
	keeping := keepers(e)
	switch {
	case len(keeping) > 0:
		text = staysUntil(keeping)
	case c.blind():
		text += "and who holds it cannot be told: " + unreadNames(c.Unread) + " could not be read"
	case c.wordsInTheWay():
		text += "and its finalizers are kept by words that still stand on it"
	case c.unreadableRecord() != nil:
		text += "and stays because its use record cannot be read: who it named is not known"
	case onlyForeign(e.Finalizers):
		text += "and stays until the owners of other finalizers take them away"
	default:
		text += "and nobody is seen to hold it: " + c.dueOrLate(e)
	}
	if names := wanting(plain(e.Holders)); len(names) > 0 {
		text += "; " + stillWant(names)
	}
	return text
}

// dueOrLate is what becomes of a claim on its way out that nobody holds.
func (c Case) dueOrLate(e Explanation) string {
	f, ok := c.due()
	switch {
	case ok && c.late():
		return f.Owner + " ought to have taken " + f.Key + " away"
	case ok && len(e.Foreign()) > 0:
		return f.Key + " should go any moment, and it stays until the owners of other finalizers take them away"
	}
	return "it should go any moment"
}

// staysUntil is said of a claim on its way out: here, and in an event on it.
func staysUntil(names []string) string {
	return "is being deleted, and stays until " + and(names) + " let" + third(names) + " go"
}

// stillWant is said of workloads that can use the claim no more: here, and in an
// event on it.
func stillWant(names []string) string {
	return and(names) + " still want" + third(names) + " it, and can start no pod on it any more"
}

// keepers are those that keep a claim on its way out, pods with their nodes.
func keepers(e Explanation) []string {
	var names []string
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
	names := cmp.Or(namedHolders(told(holders)), c.toldNames(), namedHolders(holders))
	text := "is in use by " + names
	if names == "" {
		text = "has not been looked at by an operator"
	}
	keeping := holding(e)
	switch {
	case e.Refused && names == "":
		return text + ": a DELETE is refused until one has"
	case e.Refused:
		return text + ": a DELETE is refused"
	case len(keeping) > 0:
		return text + ": a DELETE would be accepted, and the claim would stay until " + and(keeping) + " let" + third(keeping) + " go"
	case c.blind():
		return text + ": a DELETE would be accepted, and whether anything keeps the claim then cannot be told"
	}
	return text + ": a DELETE would be accepted, and take the claim " + taken(e)
}

// toldNames are those that the words on the claim name.
func (c Case) toldNames() string {
	if c.unverified() {
		return ""
	}
	return said(c.Claim.Annotations[HoldersAnnotation])
}

// unverified tells whether the words on the claim are those of its birth, and name nobody.
func (c Case) unverified() bool { return c.Claim.Annotations[HoldersAnnotation] == Unverified }

// holding are those that truly keep the claim.
func holding(e Explanation) []string {
	var names []string
	for _, h := range e.Holders {
		if h.Holds {
			names = append(names, h.Name)
		}
	}
	return names
}

// wanting are the workloads that want a claim.
func wanting(holders []Holder) []string {
	var names []string
	for _, h := range holders {
		if h.Reason == DesiredState {
			names = append(names, h.Name)
		}
	}
	return names
}

func onlyForeign(finalizers []Finalizer) bool {
	ours := func(f Finalizer) bool { return f.Key == PodsFinalizer || f.Key == BarrierFinalizer }
	return len(finalizers) > 0 && !slices.ContainsFunc(finalizers, ours)
}

func plain(explained []Explained) []Holder {
	var holders []Holder
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
