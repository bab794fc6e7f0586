// Package volumes says which PersistentVolumeClaims belong to a LeaderWorkerSet, and what
// owns and deletes them.
//
// The ownerReferences of the PVCs of leaders and workers alike:
//
//	whenDeleted Delete     the set
//	whenDeleted Retain     none of ours
//
// No StatefulSet deletes PVCs: a worker StatefulSet goes with every restart of its group,
// and each of them says Retain. One that another implementation or version created says
// Delete. It is turned to Retain once its PVCs are owned by the set.
//
// The package is pure, and refuses to know when a PVC is written.
package volumes
