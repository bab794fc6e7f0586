package pvccache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/internal/pvc"
)

// standingPolicies has policies and bindings, by kind and name, but those that are away.
type standingPolicies struct {
	client.Reader
	away []string
	err  error
	// unknown begins the names of kinds of policies that are not served.
	unknown string
}

func (s standingPolicies) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if s.unknown != "" && strings.HasPrefix(kind, s.unknown+"Admission") {
		return &meta.NoKindMatchError{}
	}
	if slices.Contains(s.away, kind+"/"+key.Name) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.err
}

func TestDeletedPoliciesAreMissing(t *testing.T) {
	without := func(names ...string) (api standingPolicies) {
		for _, name := range names {
			api.away = append(api.away, "ValidatingAdmissionPolicy/"+name+ours, "MutatingAdmissionPolicy/"+name+ours)
		}
		return api
	}
	unbound := func(kind, name string) standingPolicies {
		return standingPolicies{away: []string{kind + "AdmissionPolicyBinding/" + name + ours}}
	}
	for _, tt := range []struct {
		name  string
		api   standingPolicies
		all   bool // alone, and with an initial hold
		want  []string
		fails bool
	}{
		{"all are there", standingPolicies{}, true, nil, false},
		{"what refuses a deletion", without("refuse-delete"), false, []string{"refuse-delete"}, false},
		{"a binding", unbound("Validating", "guard"), false, []string{"guard"}, false},
		{"both, in order", without("guard", "refuse-delete"), false, []string{"refuse-delete", "guard"}, false},
		{"what has pods gated in mode strict", without("gated"), false, []string{"gated"}, false},
		{"the gate of mode strict", without("gate"), false, []string{"gate"}, false},
		{"a binding of the barrier", unbound("Mutating", "barrier"), false, []string{"barrier"}, false},
		{"the removal of forged annotations", without("forged"), false, []string{"forged"}, false},
		{"policies that were not chosen", without("initial-hold", "pod-protection"), false, nil, false},
		{"policies that were chosen", without("initial-hold", "pod-protection"), true, []string{"pod-protection", "initial-hold"}, false},
		{"unread policies", standingPolicies{err: errors.New("forbidden")}, false, nil, true},
		{"before 1.36, the controller takes their place", standingPolicies{unknown: "Mutating"}, true, nil, false},
		{"before 1.30", standingPolicies{unknown: "Validating"}, false, nil, true},
	} {
		got, err := NewPolicies(tt.api, tt.all, tt.all).Missing(t.Context())
		for i := range tt.want {
			tt.want[i] += ours
		}
		if diff := cmp.Diff(tt.want, got); (err != nil) != tt.fails || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

func TestTheExpectedPoliciesAreInstalled(t *testing.T) {
	var all strings.Builder
	err := fs.WalkDir(config.Protection, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(config.Protection, path)
		all.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	installed, sought := map[string]bool{}, map[string]bool{}
	for _, found := range regexp.MustCompile(`kind: (\w*Admission\w*)\nmetadata:\n  name: (\S+)`).FindAllStringSubmatch(all.String(), -1) {
		if !strings.HasPrefix(found[2], "refuse-forged") { // before 1.36 alone
			installed[found[1]+" "+found[2]] = true
		}
	}
	p := NewPolicies(nil, true, true)
	for kind, names := range map[string][]string{mutatingKind: p.mutating, validatingKind: append(p.validating, p.needing...)} {
		for _, name := range names {
			sought[kind+" "+name+ours], sought[kind+"Binding "+name+ours] = true, true
		}
	}
	if diff := cmp.Diff(installed, sought); diff != "" {
		t.Errorf("(-installed +expected):\n%s", diff)
	}
}

// A live read is shared only by calls that came before it began.
func TestALiveReadIsSharedByEarlierCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads liveReads
		begun, end, got := 0, make(chan struct{}), make(chan *Namespace, 9)
		ask := func(namespace string) {
			got <- reads.of(namespace, func() *Namespace {
				begun++
				<-end
				return &Namespace{}
			})
		}
		go ask("a")
		synctest.Wait()
		for range 3 { // the first has begun: these share the next
			go ask("a")
		}
		go ask("b") // another namespace does not wait
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d reads run, want one of each namespace", begun)
		}
		for range 3 { // the reads that run, and then the shared one
			end <- struct{}{}
			synctest.Wait()
		}
		if begun != 3 || len(got) != 5 {
			t.Errorf("%d reads for %d calls", begun, len(got))
		}
	})
}

// unreadable refuses one kind of list; the other lists are empty.
type unreadable struct {
	client.Reader
	kind string
}

func (u unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (u unreadable) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if fmt.Sprintf("%T", list) == u.kind {
		return errors.New("forbidden")
	}
	return nil
}

// Only a live read of all kinds may end a hold: a kind that cannot be read may hold the PVC.
func TestALiveViewNeedsAllKinds(t *testing.T) {
	for kind, complete := range map[string]bool{"": true, "*v1.PodList": false, "*v1.StatefulSetList": false} {
		h := &Holds{Reader: Reader{Live: unreadable{kind: kind}}}
		view, err := h.Live(t.Context(), pvc.HoldView{Claim: going("a")})
		if (err == nil) != complete || view.Live != complete {
			t.Errorf("without %q: live %t, error %v", kind, view.Live, err)
		}
	}
}
