package pvc

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// then is what becomes of the data once the PVC is gone.
func (c Case) then(holders, idle []Holder) []string {
	then := []string{c.volume()}
	for _, h := range append(holders, idle...) {
		switch {
		case h.match.Numbered && (h.Phase == "" || h.AwaitsEnd()):
			then = append(then, h.Name+" creates an empty PVC of the same name")
		case h.Reason == DesiredState && h.Phase == "":
			then = append(then, h.Name+" cannot start a pod until a PVC of the same name exists")
		}
	}
	return then
}

// VolumeIsAnothers reports whether the volume that the PVC names is bound to another PVC.
func (c Case) VolumeIsAnothers() bool {
	if c.Volume == nil {
		return false
	}
	ref := c.Volume.Spec.ClaimRef
	if ref == nil {
		return c.Claim.Status.Phase == corev1.ClaimPending
	}
	return ref.Namespace != c.Claim.Namespace || ref.Name != c.Claim.Name || ref.UID != "" && ref.UID != c.Claim.UID
}

func (c Case) volume() string {
	name := c.Claim.Spec.VolumeName
	switch {
	case name == "":
		return "no volume is bound: there is no data"
	case c.VolumeGone:
		return fmt.Sprintf("volume %s does not exist: there is no data", name)
	case c.Volume == nil:
		return fmt.Sprintf("volume %s was not read: what becomes of the data is unknown", name)
	case c.VolumeIsAnothers():
		return fmt.Sprintf("volume %s is not bound to this PVC: nothing happens to it", name)
	case c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return fmt.Sprintf("volume %s is kept, Released: the data stays", name)
	}
	return fmt.Sprintf("volume %s is deleted, and the data with it", name)
}

// rescue keeps the volume of a terminating PVC.
func (c Case) rescue() []Suggestion {
	if !c.terminating() || c.Volume == nil || c.VolumeIsAnothers() || c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	return []Suggestion{{Do: "keep the volume: change its reclaim policy before the PVC is gone", Command: RetainCommand(c.Volume.Name)}}
}

// RetainCommand makes a volume outlive its PVC.
func RetainCommand(volume string) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, volume)
}
