//! Connected regions of a grid of cells, and their outlines.

use std::collections::HashSet;

/// Cells by row, each with the number of its region from 1, or 0 for none. Regions are numbered in the order of their
/// first cells.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) width: usize,
    pub(crate) labels: Vec<u32>,
    pub(crate) count: u32,
}

/// A corner of cells, or a step from one to the next.
type Point = (i64, i64);

/// The rings around a region: the outer one first, then those around its holes. A ring is closed, and has corners only at
/// its turns.
pub(crate) type Rings = Vec<Vec<Point>>;

impl Regions {
    /// Joins cells that share an edge.
    pub(crate) fn of(width: usize, cells: &[bool]) -> Regions {
        let mut labels = vec![0; cells.len()];
        let mut count = 0;
        let mut todo = Vec::new();
        for first in 0..cells.len() {
            if cells[first] && labels[first] == 0 {
                count += 1;
                todo.push(first);
            }
            while let Some(cell) = todo.pop() {
                if cells[cell] && labels[cell] == 0 {
                    labels[cell] = count;
                    todo.extend((cell % width > 0).then(|| cell - 1));
                    todo.extend(((cell + 1) % width > 0).then_some(cell + 1));
                    todo.extend(cell.checked_sub(width));
                    todo.extend((cell + width < cells.len()).then_some(cell + width));
                }
            }
        }
        Regions { width, labels, count }
    }

    /// Returns the outline of each region.
    pub(crate) fn outlines(&self) -> Vec<Rings> {
        let mut outlines = vec![Rings::new(); self.count as usize];
        let mut seen = HashSet::new();
        let height = self.labels.len() / self.width;
        for start in (0..=height as i64).flat_map(|y| (0..=self.width as i64).map(move |x| (x, y)))
        {
            // The first corner of an outer ring starts to the right, and that of a hole downwards.
            for step in [(1, 0), (0, 1)] {
                let (left, label) = self.sides(start, step);
                if label != 0 && left != label && !seen.contains(&(start, step)) {
                    outlines[label as usize - 1].push(self.ring(start, step, &mut seen));
                }
            }
        }
        outlines
    }

    /// Follows the outline from a corner, with the region on the right hand.
    fn ring(&self, start: Point, first: Point, seen: &mut HashSet<(Point, Point)>) -> Vec<Point> {
        let label = self.sides(start, first).1;
        let (mut ring, mut at, mut step) = (vec![start], start, first);
        loop {
            seen.insert((at, step));
            at = (at.0 + step.0, at.1 + step.1);
            let (left, right) = self.sides(at, step);
            // Where two cells of the region meet at a corner, the turn to the left joins them, so that no ring meets itself.
            let next = match (left == label, right == label) {
                (true, _) => (step.1, -step.0),
                (false, true) => step,
                (false, false) => (-step.1, step.0),
            };
            if next != step || at == start {
                ring.push(at);
            }
            if at == start {
                return ring;
            }
            step = next;
        }
    }

    /// The labels on the left and right hand of a step from a corner, with y downwards.
    fn sides(&self, (x, y): Point, (dx, dy): Point) -> (u32, u32) {
        let label = |x: i64, y: i64| match usize::try_from(x) {
            Ok(column) if column < self.width && y >= 0 => {
                self.labels.get(y as usize * self.width + column).copied().unwrap_or(0)
            }
            _ => 0,
        };
        let (left, right) = ((dx + dy, dy - dx), (dx - dy, dx + dy));
        let beside = |(dx, dy): Point| label(x + (dx - 1) / 2, y + (dy - 1) / 2);
        (beside(left), beside(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlines(rows: &[&str]) -> Vec<Rings> {
        let cells: Vec<bool> = rows.concat().bytes().map(|cell| cell == b'#').collect();
        Regions::of(rows[0].len(), &cells).outlines()
    }

    #[test]
    fn a_ring_has_its_hole() {
        let around = vec![(0, 0), (3, 0), (3, 3), (0, 3), (0, 0)];
        let hole = vec![(1, 1), (1, 2), (2, 2), (2, 1), (1, 1)];
        assert_eq!(outlines(&["###", "#.#", "###"]), [[around, hole]]);
    }

    #[test]
    fn cells_that_meet_at_a_corner_are_two_regions() {
        let square = |x, y| vec![(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1), (x, y)];
        assert_eq!(outlines(&["#.", ".#"]), [[square(0, 0)], [square(1, 1)]]);
    }

    #[test]
    fn no_ring_meets_itself_at_a_corner() {
        let found = outlines(&["##.", "#.#", "###"]);
        assert_eq!((found.len(), found[0].len()), (1, 2), "{found:?}");
        let found = outlines(&["####", "#.##", "##.#", "####"]);
        assert_eq!((found.len(), found[0].len()), (1, 3), "{found:?}");
    }
}
