package scheduling_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestAPodIsWrittenOnItsClaimsBeforeItIsBound(t *testing.T) {
	s := newStage(t, "")
	s.cached(newClaim("data"), newClaim("logs", annotated(pvc.UsersAnnotation, "a=1")))
	if status := s.schedule(newPod("web", "data", "logs", "data")); !status.IsSuccess() {
		t.Fatal(status)
	}
	if got := s.record("data"); got != "web=uid-web" {
		t.Errorf("data names %q", got)
	}
	if got := s.record("logs"); got != "a=1,web=uid-web" {
		t.Errorf("logs names %q", got)
	}
	if status := s.schedule(newPod("web", "data", "logs")); !status.IsSuccess() || len(s.writes) != 4 || s.record("logs") != "a=1,web=uid-web" {
		t.Errorf("a second time it is written anew: %v, writes %v", status, s.writes)
	}
}

func TestNothingIsWrittenForWhatIsNotProtected(t *testing.T) {
	tests := []struct {
		name, arguments string
		labels          map[string]string
		claim           *corev1.PersistentVolumeClaim
		writes          bool
	}{
		{"by default", "", nil, newClaim("data"), true},
		{"cluster off", `{"mode":"off"}`, nil, newClaim("data"), false},
		{"cluster observe", `{"mode":"observe"}`, nil, newClaim("data"), false},
		{"cluster off, namespace strict", `{"mode":"off"}`, map[string]string{pvc.ModeKey: "strict"}, newClaim("data"), true},
		{"namespace off", "", map[string]string{pvc.ModeKey: "off"}, newClaim("data"), false},
		{"namespace off, claim hold", "", map[string]string{pvc.ModeKey: "off"}, newClaim("data", annotated(pvc.ModeKey, "hold")), true},
		{"claim observe", "", nil, newClaim("data", annotated(pvc.ModeKey, "observe")), false},
		{"exempt", `{"exemptNamespaces":["team"]}`, nil, newClaim("data", annotated(pvc.ModeKey, "hold")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.arguments)
			s.labelled(tt.labels)
			s.cached(tt.claim)
			status := s.schedule(newPod("web", "data"))
			if want := map[bool]framework.Code{true: framework.Success, false: framework.Skip}[tt.writes]; status.Code() != want {
				t.Errorf("got %v %q, want %v", status.Code(), status.Message(), want)
			}
			if (len(s.writes) > 0) != tt.writes {
				t.Errorf("writes %v", s.writes)
			}
			if !tt.writes && len(s.client.Actions()) > 0 {
				t.Errorf("asked the API server: %v", s.client.Actions())
			}
		})
	}
}

func TestOnlyTheProtectedAmongAPodsClaimsAreWritten(t *testing.T) {
	s := newStage(t, "")
	s.cached(newClaim("data"), newClaim("cache", annotated(pvc.ModeKey, "off")))
	if status := s.schedule(newPod("web", "cache", "data")); !status.IsSuccess() || !slices.Equal(s.writes, []string{"data"}) {
		t.Errorf("got %v, writes %v", status, s.writes)
	}
}

// TestNoPodIsBoundToAClaimThatWentAfterwards: between the choice of a node and the
// binding lie seconds to minutes.
func TestNoPodIsBoundToAClaimThatWentAfterwards(t *testing.T) {
	tests := []struct {
		name    string
		happens func(*stage)
		says    string
	}{
		{"terminating", func(s *stage) { s.live(newClaim("data", dying)) }, `persistentvolumeclaim "data" is being deleted`},
		{"gone", func(s *stage) { s.gone("data") }, `persistentvolumeclaim "data" not found`},
		{"created anew", func(s *stage) { s.live(newClaim("data", func(c *corev1.PersistentVolumeClaim) { c.UID = "another" })) },
			`persistentvolumeclaim "data" was created anew after a node was chosen`},
		{"record unreadable", func(s *stage) { s.live(newClaim("data", annotated(pvc.UsersAnnotation, "?"))) },
			`persistentvolumeclaim "data": use record: "?" is not "name=uid"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, pod := newStage(t, ""), newPod("web", "data")
			s.cached(newClaim("data"))
			state, status := s.filter(pod)
			if !status.IsSuccess() {
				t.Fatal(status)
			}
			tt.happens(s)
			status = s.bind(t.Context(), state, pod)
			if status.Code() != framework.UnschedulableAndUnresolvable || status.Message() != tt.says {
				t.Errorf("got %v %q, want %q", status.Code(), status.Message(), tt.says)
			}
			if len(s.writes) > 0 {
				t.Errorf("writes %v", s.writes)
			}
		})
	}
}

// TestAClaimThatGoesBetweenReadAndWriteRefusesThePod is the heart of it.
func TestAClaimThatGoesBetweenReadAndWriteRefusesThePod(t *testing.T) {
	s := newStage(t, "")
	s.cached(newClaim("data"))
	s.before = sync.OnceFunc(func() { s.live(newClaim("data", dying)) })
	status := s.schedule(newPod("web", "data"))
	if status.Code() != framework.UnschedulableAndUnresolvable || status.Message() != `persistentvolumeclaim "data" is being deleted` {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
	if s.record("data") != "" {
		t.Errorf("a terminating claim names %q", s.record("data"))
	}
}

func TestAConflictIsLookedIntoABoundedNumberOfTimes(t *testing.T) {
	s := newStage(t, "")
	s.cached(newClaim("data"))
	changes := 0
	s.before = func() {
		if changes++; changes < 3 {
			s.live(newClaim("data", annotated(pvc.UsersAnnotation, fmt.Sprintf("other=%d", changes))))
		}
	}
	if status := s.schedule(newPod("web", "data")); !status.IsSuccess() || s.record("data") != "other=2,web=uid-web" {
		t.Errorf("got %v, record %q", status, s.record("data"))
	}

	s = newStage(t, "")
	s.cached(newClaim("data"))
	s.before = func() { s.live(newClaim("data")) }
	status := s.schedule(newPod("web", "data"))
	if status.Code() != framework.Unschedulable || !strings.Contains(status.Message(), "claims changed 5 times") {
		t.Errorf("got %v %q", status.Code(), status.Message())
	}
}

// TestAnyErrorMeansNotBound, and the scheduler tries again after a while.
func TestAnyErrorMeansNotBound(t *testing.T) {
	down := errors.New("the API server is away")
	for _, verb := range []string{"get", "patch"} {
		s := newStage(t, "")
		s.cached(newClaim("data"))
		s.refuse = func(v, _ string) error {
			if v == verb {
				return down
			}
			return nil
		}
		status := s.schedule(newPod("web", "data"))
		if status.Code() != framework.Error || !errors.Is(status.AsError(), down) {
			t.Errorf("%s: got %v %q", verb, status.Code(), status.Message())
		}
	}
	s := newStage(t, "")
	if status := s.plugin.PreBind(t.Context(), newCycle(), newPod("web", "data"), "node"); status.Code() != framework.Error {
		t.Errorf("without PreFilter: got %v", status)
	}
}

// TestWhatWasWrittenForNothingIsTakenBack: a pod that is refused for its second
// claim does not hold its first, unless it held that before.
func TestWhatWasWrittenForNothingIsTakenBack(t *testing.T) {
	for before, after := range map[string]string{"": "", "a=1": "a=1", "web=uid-web": "web=uid-web"} {
		s, pod := newStage(t, ""), newPod("web", "data", "logs")
		s.cached(newClaim("data", annotated(pvc.UsersAnnotation, before)), newClaim("logs"))
		s.refuse = func(verb, name string) error {
			if verb == "patch" && name == "logs" {
				return errors.New("refused")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		state, _ := s.filter(pod)
		cancel() // as when the pod is deleted meanwhile
		if status := s.bind(ctx, state, pod); status.IsSuccess() {
			t.Fatal("bound")
		}
		if got := s.record("data"); got != after {
			t.Errorf("from %q to %q, want %q", before, got, after)
		}
	}
}

// TestWhatIsTakenBackTooLateIsRefused: an attempt fails, and what it sends to take the
// pod off its claim is still under way when the next one finds the pod there. Nobody
// may rely on that without making another version, or the pod is bound and then off.
func TestWhatIsTakenBackTooLateIsRefused(t *testing.T) {
	s, pod := newStage(t, ""), newPod("web", "data", "logs")
	s.cached(newClaim("data"), newClaim("logs"))
	s.refuse = func(verb, name string) error {
		if verb == "patch" && (name == "logs" || s.claims["data"].Annotations[pvc.UsersAnnotation] != "") {
			return errors.New("timeout") // and who knows when it arrives
		}
		return nil
	}
	if status := s.schedule(pod); status.IsSuccess() || s.record("data") == "" {
		t.Fatalf("got %v, record %q", status, s.record("data"))
	}
	onto := s.claims["data"].ResourceVersion // and so is what takes it back
	s.refuse = nil
	if status := s.schedule(pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	if s.record("data") != "web=uid-web" || s.claims["data"].ResourceVersion == onto {
		t.Errorf("record %q at version %s: what takes it back still matches", s.record("data"), onto)
	}
	s.refuse = func(string, string) error { return errors.New("timeout") }
	if s.schedule(pod); s.record("data") != "web=uid-web" {
		t.Error("what was there before is taken back")
	}
}

// TestAFullRecordMakesRoomByItself: with no operator to take pods off, a record
// must not be full for ever.
func TestAFullRecordMakesRoomByItself(t *testing.T) {
	long := strings.Repeat("pod", 60)
	var full pvc.Record
	for i := 0; ; i++ {
		longer, err := full.With(pvc.Recorded{Name: long, UID: types.UID(fmt.Sprintf("uid-%d", i))})
		if err != nil {
			break
		}
		full = longer
	}
	for _, there := range []int{0, 1, len(full)} {
		var pods []runtime.Object
		for _, recorded := range full[:there] {
			pod := newPod(string(recorded.UID))
			pod.UID = recorded.UID
			pods = append(pods, pod)
		}
		s := newStage(t, "", pods...)
		s.cached(newClaim("data", annotated(pvc.UsersAnnotation, full.String())))
		status := s.schedule(newPod(long, "data"))
		left, err := pvc.ParseRecord(s.record("data"))
		switch {
		case err != nil:
			t.Fatal(err)
		case there < len(full) && (!status.IsSuccess() || len(left) != there+1):
			t.Errorf("%d pods of the record are there: got %v, and a record of %d", there, status.Code(), len(left))
		case there == len(full) && (status.Code() != framework.Unschedulable || !strings.Contains(status.Message(), "use record is full")):
			t.Errorf("all pods of the record are there: got %v %q", status.Code(), status.Message())
		}
	}
}

// TestPodsThatShareAClaimDoNotRefuseEachOther: a scheduler binds many at once.
func TestPodsThatShareAClaimDoNotRefuseEachOther(t *testing.T) {
	const pods = 40
	s := newStage(t, "")
	s.cached(newClaim("data"), newClaim("logs"))
	var running sync.WaitGroup
	for i := range pods {
		running.Go(func() {
			claims := []string{"data", "logs"}
			if i%2 == 1 {
				slices.Reverse(claims)
			}
			if status := s.schedule(newPod(fmt.Sprintf("web-%d", i), claims...)); !status.IsSuccess() {
				t.Errorf("pod %d: %v", i, status)
			}
		})
	}
	running.Wait()
	if len(s.writes) != 2*pods {
		t.Errorf("%d writes for %d pods", len(s.writes), pods)
	}
}
