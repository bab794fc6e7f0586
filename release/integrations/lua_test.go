package integrations

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gopherjson "layeh.com/gopher-json"
)

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
	source, err := os.ReadFile(filepath.Join(scripts, script))
	if err != nil {
		t.Fatal(err)
	}
	state.SetGlobal("obj", gopherjson.DecodeValue(state, floats(t, set.Object)))
	if err := state.DoString(string(source)); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	returned, err := gopherjson.Encode(state.Get(-1))
	var result map[string]any
	if err == nil {
		err = json.Unmarshal(returned, &result)
	}
	if err != nil {
		t.Fatalf("%s returns %s: %v", script, returned, err)
	}
	return result
}

// floats is an object as JSON has it: Lua has no integers.
func floats(t *testing.T, object any) (same map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &same)
	}
	if err != nil {
		t.Fatal(err)
	}
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
