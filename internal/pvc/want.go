package pvc

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// Want is the claims that one workload's desired state names, whether there are
// pods for them or not.
type Want struct {
	Workload identity.Ref
	// Controller is who controls the workload, or empty.
	Controller types.UID
	// Ending: the workload is on its way out and wants nothing any more. Foreground: and
	// takes what it owns along before it goes.
	Ending, Foreground bool
	// Idle says why it wants none of these for now, or is empty.
	Idle string
	// Named are the claims that pod templates name, by the field that does.
	Named map[string]string
	// Series are the claims that are numbered.
	Series []Series
	// DeleteWhenScaled: claims of ordinals beyond the replicas are to be deleted.
	DeleteWhenScaled bool
	// Released says what makes the workload let go.
	Released string
	// Since is when it was created, or zero.
	Since time.Time
}

// Series is claims whose names end in numbers: prefix-3, or prefix-0-3.
type Series struct {
	Prefix string
	Spans  []Span
	Path   string
}

// Span is the numbers from From up to, and not including, To.
type Span struct{ From, To int }

func (s Span) has(n int) bool { return s.From <= n && n < s.To }

// covers reports whether a name is of the series, and whether it is in range.
func (s Series) covers(name string) (ofSeries, inRange bool) {
	rest, ok := strings.CutPrefix(name, s.Prefix+"-")
	if !ok {
		return false, false
	}
	numbers := strings.Split(rest, "-")
	if len(numbers) != len(s.Spans) {
		return false, false
	}
	inRange = true
	for i, number := range numbers {
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || strconv.Itoa(int(n)) != number {
			return false, false // "007" is nobody's seventh
		}
		inRange = inRange && s.Spans[i].has(int(n))
	}
	return true, inRange
}

// below is how many replicas do not reach a claim of the series.
func (s Series) below(name string) int {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, s.Prefix+"-"), "-")
	n, err := strconv.Atoi(first)
	if err != nil || n < s.Spans[0].From {
		return 0
	}
	return n - s.Spans[0].From
}

// newWant begins the want of a workload.
func newWant(kind identity.Kind, apiVersion string, workload metav1.Object) Want {
	w := Want{
		Workload: identity.RefOf(kind, workload), Ending: workload.GetDeletionTimestamp() != nil,
		Named: map[string]string{}, Since: workload.GetCreationTimestamp().Time,
	}
	w.Foreground = w.Ending && slices.Contains(workload.GetFinalizers(), metav1.FinalizerDeleteDependents)
	w.Workload.APIVersion = apiVersion
	if owner := metav1.GetControllerOfNoCopy(workload); owner != nil {
		w.Controller = owner.UID
	}
	return w
}

// Desire is everything wanted in one namespace, found by the names of claims.
type Desire struct {
	namespace string
	wants     []Want
	byUID     map[types.UID]int
	named     map[string][]int
	// series are found by what is left of a name without its numbers.
	series map[string][]int
}

// NewDesire indexes the wants of a namespace. What is of another is left out:
// nobody wants another namespace's claims.
func NewDesire(namespace string, wants []Want) *Desire {
	d := &Desire{namespace: namespace, byUID: map[types.UID]int{}, named: map[string][]int{}, series: map[string][]int{}}
	for _, want := range wants {
		if want.Workload.Namespace == namespace && want.Workload.UID != "" {
			d.add(want)
		}
	}
	return d
}

func (d *Desire) add(want Want) {
	i := len(d.wants)
	d.wants = append(d.wants, want)
	d.byUID[want.Workload.UID] = i
	for claim := range want.Named {
		d.named[claim] = append(d.named[claim], i)
	}
	for _, series := range want.Series {
		if known := d.series[series.Prefix]; len(known) == 0 || known[len(known)-1] != i {
			d.series[series.Prefix] = append(known, i)
		}
	}
}

// claimed is one workload's claim to a claim.
type claimed struct {
	want *Want
	path string
	// out says why it does not hold for now, or is empty.
	out string
	// numbered: the workload makes the claim itself.
	numbered bool
	// below is the number of replicas at which it does not want the PVC.
	below int
}

// discarded reports whether the workload makes the claim and is scaled to do without,
// with the word that what is left over is deleted.
func (c claimed) discarded() bool {
	return c.numbered && c.out != "" && c.want.DeleteWhenScaled && !c.want.Ending
}

// past reports whether a workload is what another one was before: an old revision of a
// Deployment, which speaks for itself.
func (w *Want) past() bool {
	return w.Workload.Kind == replicaSet && w.Controller != "" && w.Idle == scaledToZero
}

// of finds who wants a claim, in range or not.
func (d *Desire) of(claim string) []claimed {
	var found []claimed
	for _, i := range d.named[claim] {
		want := &d.wants[i]
		found = append(found, claimed{want: want, path: want.Named[claim], out: want.Idle})
	}
	for _, prefix := range Prefixes(claim) {
		for _, i := range d.series[prefix] {
			found = append(found, d.wants[i].series(prefix, claim)...)
		}
	}
	return found
}

func (w *Want) series(prefix, claim string) []claimed {
	var found []claimed
	for _, series := range w.Series {
		ofSeries, inRange := series.covers(claim)
		if series.Prefix != prefix || !ofSeries {
			continue
		}
		out := w.Idle
		if !inRange && out == "" {
			out = "out of range"
		}
		found = append(found, claimed{
			want: w, path: series.Path, out: out, numbered: true,
			below: series.below(claim),
		})
	}
	return found
}

// maxNumbers is how many numbers a name may end in.
const maxNumbers = 2

// Prefixes are what is left of a name without the numbers that it ends in.
func Prefixes(name string) []string {
	var found []string
	for range maxNumbers {
		dash := strings.LastIndexByte(name, '-')
		if dash < 0 {
			break
		}
		name = name[:dash]
		found = append(found, name)
	}
	return found
}

// maxChain bounds the walk up a chain of controllers, which can be forged into a
// ring.
const maxChain = 8

// top is the workload that a person would scale or delete, and whether anything
// up the chain is on its way out. links are controllers that want nothing
// themselves: pods. Under a CronJob it is the Job: what that has begun goes on, whatever
// becomes of the schedule.
func (d *Desire) top(want *Want, links map[types.UID]Link) (top *Want, ending bool) {
	top, ending = want, want.Ending
	for next, steps := want.Controller, 0; next != "" && steps < maxChain; steps++ {
		i, ok := d.byUID[next]
		if !ok {
			next = links[next].Controller
			continue
		}
		above := &d.wants[i]
		if above.Workload.Kind != cronJob {
			top = above
		}
		ending = ending || above.Ending
		next = above.Controller
	}
	return top, ending
}

// schedule is the CronJob that a workload was begun by, if any. One CronJob is not
// begun by another: those that are forged into a ring would hide each other.
func (d *Desire) schedule(want *Want) []types.UID {
	i, ok := d.byUID[want.Controller]
	if ok && want.Workload.Kind != cronJob && d.wants[i].Workload.Kind == cronJob {
		return []types.UID{want.Controller}
	}
	return nil
}

// above are the workload at the top of a pod's chain and the CronJob that began that: a
// Job that is over holds nothing, and its pods are there as long as it is.
func (d *Desire) above(pod types.UID, links map[types.UID]Link) []types.UID {
	next := links[pod].Controller
	for range maxChain {
		if i, ok := d.byUID[next]; ok {
			top, _ := d.top(&d.wants[i], links)
			return append(d.schedule(top), top.Workload.UID)
		}
		next = links[next].Controller
	}
	return nil
}

// Link is one object of a chain of controllers.
type Link struct {
	Object     identity.Ref
	Controller types.UID
}
