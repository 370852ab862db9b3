package view

import "slices"

// InUse are those of the locks that are in use.
func InUse(locks []Lock) []Lock {
	return slices.DeleteFunc(slices.Clone(locks), func(l Lock) bool { return !l.InUse() })
}

// Worth are those of the locks that are worth showing: of each name those in use, and if none is, the one that was used
// last. If several kinds were looked at and none was ever used, a Lock without a kind stands for the name.
func Worth(locks []Lock) []Lock {
	var worth []Lock
	for len(locks) > 0 {
		same := func(l Lock) bool { return l.Name == locks[0].Name }
		n := len(locks)
		if i := slices.IndexFunc(locks, func(l Lock) bool { return !same(l) }); i >= 0 {
			n = i
		}
		used := InUse(locks[:n])
		if len(used) == 0 {
			used = []Lock{latest(locks[:n])}
		}
		worth = append(worth, used...)
		locks = locks[n:]
	}
	return worth
}

// latest is the one that was granted last.
func latest(locks []Lock) Lock {
	last := slices.MaxFunc(locks, func(a, b Lock) int {
		switch {
		case a.Fence < b.Fence:
			return -1
		case a.Fence > b.Fence:
			return 1
		}
		return 0
	})
	if last.Fence == 0 && len(locks) > 1 {
		last.Kind = ""
	}
	return last
}
