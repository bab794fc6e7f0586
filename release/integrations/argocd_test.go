package integrations

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gopherjson "layeh.com/gopher-json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/test/expect"
)

// healths are what Argo CD is to show for what kstatus finds. Only a pause has a word of its own.
var healths = map[status.Status]string{
	status.CurrentStatus: "Healthy", status.InProgressStatus: "Progressing", status.FailedStatus: "Degraded",
}

// Each record has a health in Argo CD's own test file, with the message of its condition Ready. Argo CD shows what
// kstatus finds, by which Helm and Flux wait.
func TestArgoCDAndKstatusJudgeSets(t *testing.T) {
	var file struct {
		Tests []struct {
			HealthStatus struct{ Status, Message string }
			InputPath    string
		}
	}
	read(t, filepath.Join(scripts, "health_test.yaml"), &file)
	left := map[string]bool{}
	for _, name := range names(t) {
		left[name] = true
	}
	for _, test := range file.Tests {
		name := strings.TrimSuffix(filepath.Base(test.InputPath), ".yaml")
		set := &unstructured.Unstructured{}
		read(t, filepath.Join(scripts, test.InputPath), set)
		want := map[string]any{"status": test.HealthStatus.Status, "message": test.HealthStatus.Message}
		expect.Equalf(t, want, run(t, "health.lua", set), "%s", name)
		isPaused := name == "paused" && want["status"] == "Suspended"
		if got := healths[judged(t, set)]; got != want["status"] && (!isPaused || got != "Progressing") {
			t.Errorf("%s is %s to kstatus, and %s to Argo CD", name, got, want["status"])
		}
		ready := meta.FindStatusCondition(typed(t, set.Object).Status.Conditions, "Ready")
		expect.That(t, ready != nil && ready.Message == want["message"],
			"%s has the condition Ready %+v, and the message %q", name, ready, want["message"])
		delete(left, name)
	}
	expect.Emptyf(t, sorted(left), "what health_test.yaml lacks")
}

// A set without any status is current to kstatus: the definition gives new sets the status that no operator has seen
// them.
func TestArgoCDAndKstatusJudgeEditedSets(t *testing.T) {
	for _, name := range sorted(edits) {
		got := run(t, "health.lua", edited(t, name))
		expect.That(t, got["status"] == "Progressing" && got["message"] != "", "%s: %v", name, got)
	}
	for name, want := range map[string]status.Status{
		"new": status.InProgressStatus, "not observed": status.InProgressStatus, "being deleted": status.TerminatingStatus,
	} {
		expect.Equalf(t, want, judged(t, edited(t, name)), "%s", name)
	}
}

// typed returns a set as the command line reads it.
func typed(t *testing.T, object map[string]any) *lwsv1.LeaderWorkerSet {
	t.Helper()
	set := &lwsv1.LeaderWorkerSet{}
	expect.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, set))
	return set
}

// withLeaderTemplate gives leaders a template of their own.
func withLeaderTemplate(set *unstructured.Unstructured) {
	template := set.Object["spec"].(map[string]any)["leaderWorkerTemplate"].(map[string]any)
	template["leaderTemplate"] = runtime.DeepCopyJSONValue(template["workerTemplate"])
}

// An action changes a set as the verb of kubectl lockstep rollout does.
func TestArgoCDActionsAreTheVerbs(t *testing.T) {
	decided := func(set *lwsv1.LeaderWorkerSet, decide clilws.Decide) (any, error) {
		change, err := decide(t.Context(), nil, set)
		return change.After, err
	}
	for _, name := range names(t) {
		for action, decide := range map[string]func(set *lwsv1.LeaderWorkerSet, after map[string]any) (any, error){
			"restart": func(set *lwsv1.LeaderWorkerSet, after map[string]any) (any, error) {
				return decided(set, clilws.Restart(restartedAt(t, after)))
			},
			"undo": func(set *lwsv1.LeaderWorkerSet, _ map[string]any) (any, error) {
				restored, _, err := undo.Restore(set, history(t), undo.Previous)
				return restored, err
			},
			"pause":  func(set *lwsv1.LeaderWorkerSet, _ map[string]any) (any, error) { return decided(set, clilws.Pause) },
			"resume": func(set *lwsv1.LeaderWorkerSet, _ map[string]any) (any, error) { return decided(set, clilws.Resume) },
		} {
			set := recorded(t, name)
			if name == "rolling-out" {
				withLeaderTemplate(set)
			}
			disabled := run(t, "actions/discovery.lua", set)[action].(map[string]any)["disabled"]
			after := map[string]any{}
			if disabled == false {
				after = run(t, "actions/"+action+"/action.lua", set)
			}
			wanted, err := decide(typed(t, set.Object), after)
			expect.Equalf(t, disabled.(bool), err != nil, "%s of %s is disabled: %v", action, name, err)
			if err != nil {
				continue
			}
			got := expect.Value(undo.Requested(typed(t, pruned(after).(map[string]any)), typed(t, set.Object), history(t)))(t)
			expect.Equalf(t, pruned(floats(t, wanted)), pruned(floats(t, got)), "%s of %s", action, name)
		}
	}
	for action, of := range run(t, "actions/discovery.lua", edited(t, "being deleted")) {
		expect.Equalf[any](t, true, of.(map[string]any)["disabled"], "%s while a set is deleted", action)
	}
}

// history has a revision of another image.
func history(t *testing.T) undo.Revisions {
	return func(set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
		before := set.DeepCopy()
		before.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "image:before"
		data := expect.Value(revision.Data(before))(t)
		return []*appsv1.ControllerRevision{{Revision: 1, Data: runtime.RawExtension{Raw: data}}}, nil
	}
}

// restartedAt is when a restarted set says that it was, or now.
func restartedAt(t *testing.T, after map[string]any) time.Time {
	t.Helper()
	text, found, _ := unstructured.NestedString(after, "spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations", clilws.RestartedAtKey)
	if !found {
		return time.Now()
	}
	at, err := time.Parse(time.RFC3339, text)
	expect.That(t, err == nil, "%v", err)
	return at
}

// Argo CD's own test file of actions holds. The time of a restart is replaced by that of the file.
func TestArgoCDActionTests(t *testing.T) {
	var file struct {
		DiscoveryTests []struct {
			InputPath string
			Result    []struct {
				Name     string
				Disabled bool
			}
		}
		ActionTests []struct{ Action, InputPath, ExpectedOutputPath string }
	}
	read(t, filepath.Join(scripts, "action_test.yaml"), &file)
	for _, test := range file.DiscoveryTests {
		set, want := &unstructured.Unstructured{}, map[string]any{}
		read(t, filepath.Join(scripts, test.InputPath), set)
		for _, action := range test.Result {
			want[action.Name] = map[string]any{"disabled": action.Disabled}
		}
		expect.Equalf(t, want, run(t, "actions/discovery.lua", set), "%s", test.InputPath)
	}
	done := map[string]bool{}
	for _, test := range file.ActionTests {
		set, want := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		read(t, filepath.Join(scripts, test.InputPath), set)
		read(t, filepath.Join(scripts, test.ExpectedOutputPath), want)
		got := run(t, "actions/"+test.Action+"/action.lua", set)
		if test.Action == "restart" {
			annotations := got["spec"].(map[string]any)["leaderWorkerTemplate"].(map[string]any)["workerTemplate"].(map[string]any)["metadata"].(map[string]any)["annotations"]
			annotations.(map[string]any)[clilws.RestartedAtKey] = "0001-01-01T00:00:00Z"
		}
		expect.Equalf(t, pruned(floats(t, want.Object)), pruned(got), "%s of %s", test.Action, test.InputPath)
		done[test.Action] = true
	}
	expect.That(t, len(file.DiscoveryTests) > 0 && len(done) == 4,
		"%d discoveries, actions %v", len(file.DiscoveryTests), done)
}

const scripts = "../../integrations/argocd/resource_customizations/leaderworkerset.x-k8s.io/LeaderWorkerSet"

// libraries are those that Argo CD gives its scripts. Of os it gives the functions about time.
var libraries = map[string]lua.LGFunction{
	lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	lua.MathLibName: lua.OpenMath, lua.OsLibName: openTime,
}

func openTime(state *lua.LState) int {
	lua.OpenOs(state)
	library := state.GetGlobal(lua.OsLibName).(*lua.LTable)
	var others []string
	library.ForEach(func(name, _ lua.LValue) {
		if !slices.Contains([]string{"time", "date", "clock", "difftime"}, name.String()) {
			others = append(others, name.String())
		}
	})
	for _, name := range others {
		library.RawSetString(name, lua.LNil)
	}
	return 1
}

// run runs a script with a set as obj, as Argo CD does, and returns what it returns.
func run(t *testing.T, script string, set *unstructured.Unstructured) map[string]any {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	open := func(name string, library lua.LGFunction) {
		state.Push(state.NewFunction(library))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	open(lua.LoadLibName, lua.OpenPackage) // the others are entered in it
	for name, library := range libraries {
		open(name, library)
	}
	source := expect.Value(os.ReadFile(filepath.Join(scripts, script)))(t)
	state.SetGlobal("obj", gopherjson.DecodeValue(state, floats(t, set.Object)))
	expect.OKf(t, state.DoString(string(source)), "%s", script)
	returned, err := gopherjson.Encode(state.Get(-1))
	var result map[string]any
	if err == nil {
		err = json.Unmarshal(returned, &result)
	}
	expect.OKf(t, err, "%s returns %s", script, returned)
	return result
}

// floats is an object as JSON has it: Lua has no integers.
func floats(t *testing.T, object any) (same map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &same)
	}
	expect.OK(t, err)
	return same
}

// pruned is an object without empty lists and maps: Lua cannot tell one from the other.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		whole := map[string]any{}
		for key, inner := range value {
			if inner = pruned(inner); inner != nil {
				whole[key] = inner
			}
		}
		if len(whole) > 0 {
			return whole
		}
		return nil
	case []any:
		var whole []any
		for _, inner := range value {
			whole = append(whole, pruned(inner))
		}
		if len(whole) > 0 {
			return whole
		}
		return nil
	}
	return value
}
