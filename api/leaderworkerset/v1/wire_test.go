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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// The bytes below are a contract: the revision of a set is a hash of some of
// them, and every other client of this API reads and writes the rest.

func encode(t *testing.T, value any) string {
	t.Helper()
	return string(expect.Value(json.Marshal(value))(t))
}

func TestEmptyValuesOnTheWire(t *testing.T) {
	const emptySpec = `{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{},"spec":{"containers":null}}},"rolloutStrategy":{"type":""},"startupPolicy":""}`
	for _, tt := range []struct {
		value any
		want  string
	}{
		{v1.LeaderWorkerSet{}, `{"metadata":{},"spec":` + emptySpec + `,"status":{}}`},
		{v1.LeaderWorkerSetTemplateSpec{}, `{"metadata":{},"spec":` + emptySpec + `}`},
		{v1.LeaderWorkerSetSpec{}, emptySpec},
		{v1.NetworkConfig{}, `{"subdomainPolicy":null}`},
		{v1.SubGroupPolicy{}, `{}`},
		{v1.RollingUpdateConfiguration{}, `{"maxUnavailable":0,"maxSurge":0}`},
		{v1.LeaderWorkerSetStatus{}, `{}`},
	} {
		expect.Equalf(t, tt.want, encode(t, tt.value), "%T", tt.value)
	}
}

func TestFullValuesOnTheWire(t *testing.T) {
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	template := v1.LeaderWorkerTemplate{
		LeaderTemplate: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: image}}}},
		WorkerTemplate: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker", Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}}},
		Size:           ptr.To[int32](3),
		RestartPolicy:  v1.RecreateGroupOnPodRestart,
		SubGroupPolicy: &v1.SubGroupPolicy{Type: ptr.To(v1.SubGroupPolicyTypeLeaderWorker), SubGroupSize: ptr.To[int32](1)},
	}
	const want = `{"leaderTemplate":{"metadata":{},"spec":{"containers":[{"name":"leader","image":"docker.io/nginxinc/nginx-unprivileged:1.27","resources":{}}]}},` +
		`"workerTemplate":{"metadata":{},"spec":{"containers":[{"name":"worker","image":"docker.io/nginxinc/nginx-unprivileged:1.27","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}},` +
		`"size":3,"restartPolicy":"RecreateGroupOnPodRestart","subGroupPolicy":{"subGroupPolicyType":"LeaderWorker","subGroupSize":1}}`
	expect.Equal(t, want, encode(t, template))
	status := v1.LeaderWorkerSetStatus{ReadyReplicas: 1, UpdatedReplicas: 2, Replicas: 3, HPAPodSelector: "s", ObservedGeneration: 4}
	text := `{"readyReplicas":1,"updatedReplicas":2,"replicas":3,"hpaPodSelector":"s","observedGeneration":4}`
	expect.Equal(t, text, encode(t, status))
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
