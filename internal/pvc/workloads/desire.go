package workloads

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Desire is what the workloads of one namespace want.
type Desire struct {
	Namespace string
	byUID     map[types.UID]*Want
	// byKey are wants by Keys.
	byKey map[string][]*Want
}

// NewDesire indexes the wants of a namespace. Those of other namespaces are left out.
func NewDesire(namespace string, wants []Want) *Desire {
	d := &Desire{Namespace: namespace, byUID: map[types.UID]*Want{}, byKey: map[string][]*Want{}}
	for _, want := range wants {
		if want.Workload.Namespace != namespace || want.Workload.UID == "" {
			continue
		}
		d.byUID[want.Workload.UID] = &want
		for _, key := range want.Keys() {
			if known := d.byKey[key]; len(known) == 0 || known[len(known)-1] != &want {
				d.byKey[key] = append(known, &want)
			}
		}
	}
	return d
}

// Keys are the names, and the prefixes of numbered names, of the PVCs that a workload wants.
func (w *Want) Keys() (keys []string) {
	for name := range w.Named {
		keys = append(keys, name)
	}
	for _, series := range w.Series {
		keys = append(keys, series.Prefix)
	}
	return keys
}

// maxNumbers is how many numbers a name may end in.
const maxNumbers = 2

// Prefixes are what is left of a name without the numbers that it ends in.
func Prefixes(name string) (prefixes []string) {
	for range maxNumbers {
		dash := strings.LastIndexByte(name, '-')
		if dash < 0 {
			break
		}
		name = name[:dash]
		prefixes = append(prefixes, name)
	}
	return prefixes
}

// Of are the workloads that want a PVC, in range or not.
func (d *Desire) Of(name string) (all []Match) {
	seen := map[*Want]bool{}
	for _, key := range append(Prefixes(name), name) {
		for _, want := range d.byKey[key] {
			if !seen[want] {
				seen[want], all = true, append(all, want.matches(name)...)
			}
		}
	}
	return all
}

// WithUID is the workload of a UID, or nil.
func (d *Desire) WithUID(uid types.UID) *Want { return d.byUID[uid] }

// maxChain bounds the walk up a chain of controllers: a user may forge a ring.
const maxChain = 8

// Above are the workloads of a chain of controllers, from a controller upward. Links are the
// controllers of pods in the chain, which want nothing themselves.
func (d *Desire) Above(controller types.UID, links map[types.UID]types.UID) (chain []*Want) {
	for range maxChain {
		if want := d.WithUID(controller); want != nil {
			chain, controller = append(chain, want), want.Controller.UID
			continue
		}
		controller = links[controller]
	}
	return chain
}

// Top is the workload of a chain that a user would scale or delete, and whether one of the chain is being deleted. The
// chain must not be empty. Under a CronJob it is the Job, which goes on when the CronJob is suspended.
func Top(chain []*Want) (top *Want, ending bool) {
	top = chain[0]
	for _, want := range chain {
		if want.Workload.Kind != cronJob {
			top = want
		}
		ending = ending || want.Ending
	}
	return top, ending
}
