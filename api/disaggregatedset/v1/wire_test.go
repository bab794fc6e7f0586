package v1_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	v1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// The bytes below are a contract: the revision of a set is a hash of some of
// them, and every other client of this API reads and writes the rest.

func encode(t *testing.T, value any) string {
	t.Helper()
	return string(expect.Value(json.Marshal(value))(t))
}

const emptySpec = `{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{},"spec":{"containers":null}}},"rolloutStrategy":{"type":""},"startupPolicy":""}`

func TestEmptyValuesOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{v1.DisaggregatedSet{}, `{"metadata":{},"spec":{"roles":null},"status":{}}`},
		{v1.DisaggregatedRole{}, `{"name":"","metadata":{},"spec":` + emptySpec + `}`},
		{v1.RoleScaling{}, `{}`},
		{v1.PlacementPolicy{}, `{}`},
		{v1.DisaggregatedSetStatus{}, `{}`},
		{v1.RoleStatus{}, `{"name":"","replicas":0,"readyReplicas":0,"updatedReplicas":0}`},
		{v1.DisaggregatedSetRoleScaler{}, `{"metadata":{},"spec":{"replicas":0},"status":{}}`}, // GET /scale fails without replicas
	} {
		expect.Equalf(t, tt.want, encode(t, tt.value), "%T", tt.value)
	}
}

func TestFullValuesOnTheWire(t *testing.T) {
	spec := v1.DisaggregatedSetSpec{
		Roles: []v1.DisaggregatedRole{{
			Name: "prefill", Scaling: &v1.RoleScaling{Mode: v1.ScalingExternal}, Metadata: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: lwsv1.LeaderWorkerSetSpec{Replicas: ptr.To[int32](2)},
		}},
		Slices: ptr.To[int32](3), PlacementPolicy: &v1.PlacementPolicy{Type: v1.PlacementExclusiveSlice, Topology: "rack"},
	}
	expect.Equal(t, `{"roles":[{"name":"prefill","scaling":{"mode":"External"},"metadata":{"labels":{"a":"b"}},"spec":{"replicas":2,`+emptySpec[1:]+
		`}],"slices":3,"placementPolicy":{"type":"ExclusiveSlice","topology":"rack"}}`, encode(t, spec))
	status := v1.DisaggregatedSetStatus{
		ObservedGeneration: 1, RoleStatuses: []v1.RoleStatus{{Name: "prefill", Replicas: 2, ReadyReplicas: 3, UpdatedReplicas: 4}},
		Roles: 5, ReadyRoles: 6, UpdatedRoles: 7,
	}
	expect.Equal(t, `{"observedGeneration":1,"roleStatuses":[{"name":"prefill","replicas":2,"readyReplicas":3,"updatedReplicas":4}],`+
		`"roles":5,"readyRoles":6,"updatedRoles":7}`, encode(t, status))
	scaler := v1.DisaggregatedSetRoleScalerStatus{ObservedGeneration: 1, Replicas: 2, Selector: "s"}
	expect.Equal(t, `{"observedGeneration":1,"replicas":2,"selector":"s"}`, encode(t, scaler))
}

// testdata/names.txt has the value of each constant.
func TestNamesOnTheWire(t *testing.T) {
	paths := expect.Value(filepath.Glob("*.go"))(t)
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, path := range paths {
		file := expect.Value(parser.ParseFile(fset, path, nil, 0))(t)
		if file.Name.Name == "v1" {
			files = append(files, file)
		}
	}
	// No constant needs another package: an import that is not found is no error.
	config, got := types.Config{Error: func(error) {}}, ""
	checked, _ := config.Check("v1", fset, files, nil)
	for _, name := range checked.Scope().Names() {
		if c, is := checked.Scope().Lookup(name).(*types.Const); is {
			got += name + " " + c.Val().ExactString() + "\n"
		}
	}
	want := expect.Value(os.ReadFile("testdata/names.txt"))(t)
	expect.Equal(t, string(want), got)
}

func TestKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	expect.OK(t, v1.AddToScheme(scheme))
	for _, kind := range []string{"DisaggregatedSet", "DisaggregatedSetList", "DisaggregatedSetRoleScaler", "DisaggregatedSetRoleScalerList"} {
		expect.That(t, scheme.Recognizes(v1.GroupVersion.WithKind(kind)), "%s is not registered", kind)
	}
}
