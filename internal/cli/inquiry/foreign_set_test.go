package inquiry_test

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// othersSets has sets by another implementation's definition.
type othersSets struct {
	client.Reader
	*testing.T
	sets []unstructured.Unstructured
}

func (o othersSets) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch list := list.(type) {
	case *lwsv1.LeaderWorkerSetList:
		o.Error("sets are decoded whole")
	case *unstructured.UnstructuredList:
		if list.GetKind() == "LeaderWorkerSetList" {
			list.Items = o.sets
			return nil
		}
	}
	return o.Reader.List(ctx, list, options...)
}

// One set with an amount that takes minutes to decode would keep every claim of its
// namespace from being explained.
func TestASetOfAnotherDefinitionIsReadAsFarAsItTellsItsClaims(t *testing.T) {
	data := claim("data-llama-0")
	heavy := map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{"cpu": "1e-2147483647"}}}
	set := map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		"metadata": map[string]any{"namespace": ns, "name": "llama", "uid": "u"},
		"spec": map[string]any{"replicas": int64(1), "leaderWorkerTemplate": map[string]any{
			"size":                 int64(1),
			"workerTemplate":       map[string]any{"spec": map[string]any{"containers": []any{heavy}}},
			"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": "data"}}},
		}},
	}
	c := newCluster(t, data, space(nil))
	told := explainBy(t, othersSets{c, t, []unstructured.Unstructured{{Object: set}}}, data)[0]
	var holders []string
	for _, h := range told.Holders {
		holders = append(holders, h.Name)
	}
	if !slices.Equal(holders, []string{"LeaderWorkerSet/llama"}) || len(told.Unread) > 0 {
		t.Errorf("held by %v, unread %v", holders, told.Unread)
	}
}
