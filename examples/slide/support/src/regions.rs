//! Connected regions of a grid of cells, and their outlines.

use i_overlay::core::fill_rule::FillRule;
use i_overlay::core::overlay::IntOverlayOptions;
use i_overlay::core::simplify::Simplify;
use i_overlay::i_float::int::point::IntPoint;

/// Cells by row, each with the number of its region from 1, or 0 for none. Regions are numbered in the order of their
/// first cells.
#[derive(Debug)]
pub struct Regions {
    /// Cells in a row.
    pub width: usize,
    /// The number of each cell's region.
    pub labels: Vec<u32>,
    /// The regions, by number from 1.
    pub found: Vec<Region>,
}

/// A region of cells that share edges.
#[derive(Debug, Clone)]
pub struct Region {
    /// The number of its cells.
    pub size: usize,
    /// Its first and last column.
    pub columns: (usize, usize),
    /// Its first and last row.
    pub rows: (usize, usize),
}

/// The rings around a region: the outer one first, then those around its holes. A ring is closed, and has corners only at
/// its turns.
pub type Rings = Vec<Vec<[i32; 2]>>;

impl Regions {
    /// Joins cells that share an edge.
    pub fn of(width: usize, cells: &[bool]) -> Regions {
        let mut labels = vec![0; cells.len()];
        let mut found = Vec::new();
        let mut todo = Vec::new();
        for first in (0..cells.len()).filter(|&cell| cells[cell]) {
            let mut region = Region { size: 0, columns: (usize::MAX, 0), rows: (usize::MAX, 0) };
            todo.push(first);
            while let Some(cell) = todo.pop() {
                if cells[cell] && labels[cell] == 0 {
                    labels[cell] = found.len() as u32 + 1;
                    region.add(cell % width, cell / width);
                    todo.extend((cell % width > 0).then(|| cell - 1));
                    todo.extend(((cell + 1) % width > 0).then_some(cell + 1));
                    todo.extend(cell.checked_sub(width));
                    todo.extend((cell + width < cells.len()).then_some(cell + width));
                }
            }
            found.extend((region.size > 0).then_some(region));
        }
        Regions { width, labels, found }
    }

    /// Returns the outline of each region.
    pub fn outlines(&self) -> Vec<Rings> {
        // The runs of each region in the rows, as rectangles. The outline is that of their union.
        let mut runs = vec![Vec::new(); self.found.len() + 1];
        for (labels, y) in self.labels.chunks_exact(self.width).zip(0..) {
            let mut right = 0;
            for run in labels.chunk_by(|one, next| one == next) {
                let left = right;
                right += run.len() as i32;
                let corners = [(left, y), (right, y), (right, y + 1), (left, y + 1)];
                runs[run[0] as usize].push(corners.map(|(x, y)| IntPoint::new(x, y)).to_vec());
            }
        }
        let closed = |ring: &Vec<IntPoint<i32>>| {
            ring.iter().chain(ring.first()).map(|point| [point.x, point.y]).collect()
        };
        // With this option, no ring meets itself.
        let union = |runs: Vec<_>| runs.simplify(FillRule::NonZero, IntOverlayOptions::ogc());
        runs.into_iter()
            .skip(1)
            .map(|runs| union(runs).concat().iter().map(closed).collect())
            .collect()
    }
}

impl Region {
    fn add(&mut self, x: usize, y: usize) {
        self.size += 1;
        self.columns = (self.columns.0.min(x), self.columns.1.max(x));
        self.rows = (self.rows.0.min(y), self.rows.1.max(y));
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
        let around = vec![[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]];
        let hole = vec![[1, 1], [1, 2], [2, 2], [2, 1], [1, 1]];
        assert_eq!(outlines(&["###", "#.#", "###"]), [[around, hole]]);
    }

    #[test]
    fn cells_that_meet_at_a_corner_are_two_regions() {
        let square = |x, y| vec![[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]];
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
