//! Connected regions of a grid of cells, and their outlines.

use std::collections::BTreeMap;

/// Cells by row, each with the number of its region from 1, or 0 for none. Regions are numbered in the order of their
/// first cells.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) width: usize,
    pub(crate) labels: Vec<u32>,
    pub(crate) count: u32,
}

/// A corner of cells.
pub(crate) type Corner = (usize, usize);

/// The rings around a region: the outer one first, then those around its holes. A ring is closed, and has corners only at
/// its turns.
pub(crate) type Rings = Vec<Vec<Corner>>;

impl Regions {
    /// Joins cells that share an edge.
    pub(crate) fn of(width: usize, cells: &[bool]) -> Regions {
        let mut labels = vec![0; cells.len()];
        let mut count = 0;
        let mut todo = Vec::new();
        for first in 0..cells.len() {
            if !cells[first] || labels[first] != 0 {
                continue;
            }
            count += 1;
            labels[first] = count;
            todo.push(first);
            while let Some(cell) = todo.pop() {
                let x = cell % width;
                let left = (x > 0).then(|| cell - 1);
                let right = (x + 1 < width).then(|| cell + 1);
                for next in
                    [left, right, cell.checked_sub(width), Some(cell + width)].into_iter().flatten()
                {
                    if cells.get(next) == Some(&true) && labels[next] == 0 {
                        labels[next] = count;
                        todo.push(next);
                    }
                }
            }
        }
        Regions { width, labels, count }
    }

    /// Returns the outline of each region.
    pub(crate) fn outlines(&self) -> Vec<Rings> {
        let mut edges = vec![BTreeMap::<Corner, Vec<Corner>>::new(); self.count as usize];
        let height = self.labels.len() / self.width;
        let at = |x: usize, y: usize| match x < self.width && y < height {
            true => self.labels[y * self.width + x],
            false => 0,
        };
        for (cell, &label) in self.labels.iter().enumerate().filter(|(_, label)| **label != 0) {
            let (x, y) = (cell % self.width, cell / self.width);
            // Each edge has the region on its right hand, with y downwards.
            let mut edge = |from: Corner, to: Corner, beyond: u32| {
                if beyond != label {
                    edges[label as usize - 1].entry(from).or_default().push(to);
                }
            };
            edge((x, y), (x + 1, y), if y == 0 { 0 } else { at(x, y - 1) });
            edge((x + 1, y), (x + 1, y + 1), at(x + 1, y));
            edge((x + 1, y + 1), (x, y + 1), at(x, y + 1));
            edge((x, y + 1), (x, y), if x == 0 { 0 } else { at(x - 1, y) });
        }
        edges.into_iter().map(rings).collect()
    }
}

/// Links the edges of one region. The first edge of all is the top of its first cell, so the outer ring comes first.
fn rings(mut edges: BTreeMap<Corner, Vec<Corner>>) -> Rings {
    let mut rings = Vec::new();
    // Row by row, as cells come.
    while let Some(start) = edges.keys().min_by_key(|(x, y)| (*y, *x)).copied() {
        let mut ring = vec![start];
        let mut from = start;
        let mut before = None;
        loop {
            let ends = edges.get_mut(&from).expect("each corner has as many edges out as in");
            // Two cells of a region meet at a corner: the turn to the left joins them there, so that no ring meets itself.
            let to = match (ends.len(), before) {
                (2.., Some(before)) => {
                    let left = ends.iter().position(|&to| turn(before, from, to) < 0);
                    ends.swap_remove(left.expect("one of the two edges turns left"))
                }
                _ => ends.remove(0),
            };
            if ends.is_empty() {
                edges.remove(&from);
            }
            if before.is_some_and(|before| turn(before, from, to) == 0) {
                ring.pop();
            }
            ring.push(to);
            (before, from) = (Some(from), to);
            if to == start {
                break;
            }
        }
        rings.push(ring);
    }
    rings
}

/// The direction of a turn, with y downwards: greater than 0 to the right, less to the left, and 0 straight on.
fn turn(a: Corner, b: Corner, c: Corner) -> i64 {
    let [a, b, c] = [a, b, c].map(|(x, y)| (x as i64, y as i64));
    (b.0 - a.0) * (c.1 - b.1) - (b.1 - a.1) * (c.0 - b.0)
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
