// Package inquiry reads what explains PVCs: the PVCs, and by the operator's reader all
// that may hold them, each read live and with the user's credentials.
//
// It needs little permission and no Lockstep in the cluster. An object that may not be read
// is listed as unread, and never taken for absent. Package pvc decides; inquiry never
// writes: a DELETE is sent as a dry run.
package inquiry
