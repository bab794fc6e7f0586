package pvc

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// then is what happens to the data once the claim goes.
func (c Case) then(holders, idle []Holder) []string {
	told := c.volume()
	for _, h := range slices.Concat(holders, idle) {
		switch {
		case h.makes && (h.Phase == "" || h.AwaitsEnd()):
			told = append(told, h.Name+" will create an empty claim of the same name")
		case h.Reason == DesiredState && h.Phase == "":
			told = append(told, h.Name+" cannot start a pod until a claim of the same name is made again")
		}
	}
	if owner := metav1.GetControllerOfNoCopy(c.Claim); owner != nil && isEphemeral(c.Claim) {
		told = append(told, "as long as "+said(owner.Kind+"/"+owner.Name)+" is there, an empty claim of the same name is made for it")
	}
	return told
}

// VolumeIsAnothers tells whether the volume that the claim names is known not to be
// bound to it, and does not go with it.
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

func (c Case) volume() []string {
	name := c.Claim.Spec.VolumeName
	switch {
	case name == "":
		return []string{"no volume is bound: there is no data"}
	case c.VolumeGone && c.Claim.Status.Phase == corev1.ClaimPending:
		return []string{fmt.Sprintf("volume %s, which it asks for, is not there: there is no data", name)}
	case c.VolumeGone:
		return []string{fmt.Sprintf("volume %s is gone already: its data is not there any more", name)}
	case c.Volume == nil:
		return []string{fmt.Sprintf("volume %s was not read: what happens to the data is unknown", name)}
	case c.VolumeIsAnothers():
		return []string{fmt.Sprintf("volume %s is not bound to this claim: nothing happens to it", name)}
	case c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return []string{fmt.Sprintf("volume %s is kept, Released: the data stays", name)}
	}
	return []string{fmt.Sprintf("volume %s is deleted, and the data with it", name)}
}

// rescue is what keeps the data of a claim that can no longer be kept itself.
func (c Case) rescue(state State) []Suggestion {
	if !c.terminating() || c.Volume == nil || c.VolumeIsAnothers() || c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	do := "keep the volume"
	if state == Doomed {
		do = "keep the volume, since the claim can no longer be kept"
	}
	return []Suggestion{{
		Do:      do + ": change its reclaim policy before the claim goes",
		Command: RetainCommand(c.Volume.Name),
	}}
}

// RetainCommand is what a person types to have a volume outlive its claim.
func RetainCommand(volume string) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, volume)
}
