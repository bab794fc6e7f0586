package withdraw

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"lockstep.dev/lockstep/internal/lws"
)

// statusOfUnused is where a claim says whether it is unused.
var statusOfUnused = fieldpath.MakePathOrDie(
	"status", "conditions", fieldpath.KeyByFields("type", string(corev1.PersistentVolumeClaimUnused)), "status")

// conditions are taken off claims that say by our word whether they are unused: nobody
// would keep it true. That of the controller that is built in stays, which may have taken
// the condition over already, or takes it up anew.
func (w Withdrawal) conditions() subject {
	return subject{
		each: func(ctx context.Context, see func(client.Object) error) error {
			return w.eachClaim(ctx, func(claim *corev1.PersistentVolumeClaim) error { return see(claim) })
		},
		off: func(o client.Object) patch {
			if !saysUnusedByUs(o) {
				return nil
			}
			return patch{"status": map[string]any{"conditions": []map[string]any{
				{"$patch": "delete", "type": corev1.PersistentVolumeClaimUnused},
			}}}
		},
		// Conditions are merged by their type: those of others stay.
		send: func(ctx context.Context, o client.Object, text []byte) error {
			return w.Client.Status().Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, text))
		},
	}
}

// saysUnusedByUs tells whether what the condition says was last said by the operator.
// Who owns nothing but its type has been overruled.
func saysUnusedByUs(o client.Object) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager != lws.FieldOwner || entry.Subresource != "status" || entry.FieldsV1 == nil {
			continue
		}
		owned := &fieldpath.Set{}
		if owned.FromJSON(entry.FieldsV1.GetRawReader()) == nil && owned.Has(statusOfUnused) {
			return true
		}
	}
	return false
}
