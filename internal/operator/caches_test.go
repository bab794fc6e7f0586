package operator

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"lockstep.dev/lockstep/internal/pvccache"
)

// A cache has one selector for a kind, in whatever form it keeps the objects. If a kind is
// in it twice, the selector is one of the two at random.
func TestEachKindIsInACacheOnce(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t)
	o.Config.Protection.Alone = true
	for name, objects := range map[string]map[client.Object]cache.ByObject{
		"the manager's": o.cacheOptions(nil).ByObject, "protection's": pvccache.ProtectionCaches(),
	} {
		seen := map[schema.GroupVersionKind]bool{}
		for object := range objects {
			kind, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				t.Fatal(err)
			}
			if seen[kind] {
				t.Errorf("%s is twice in the cache: %s", kind.Kind, name)
			}
			seen[kind] = true
		}
		if len(seen) == 0 {
			t.Errorf("the cache is empty: %s", name)
		}
	}
}
