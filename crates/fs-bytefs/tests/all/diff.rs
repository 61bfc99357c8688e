//! Which lines of a page have changed, and whether it goes by bytes.

use amphi_fs_bytefs::diff::{
    LineMask, changed_lines, compare, goes_by_bytes, kept_lines_by_bytes, lines_by_bytes, lines_of, runs,
};
use amphi_fs_bytefs::format::{LINE, LINES_PER_PAGE, PAGE};

#[test]
fn a_changed_byte_marks_its_line_only() {
    let before = [7; PAGE];
    for at in [0, 63, 64, 2047, 4095] {
        let mut now = before;
        now[at] ^= 0x80;
        assert_eq!(changed_lines(&before, &now), 1 << (at / LINE), "byte {at}");
        assert_eq!(compare(&before, &now), 1 << (at / LINE), "byte {at}, portable");
    }
    assert_eq!(changed_lines(&before, &before), 0);
    assert_eq!(changed_lines(&before, &[8; PAGE]), u64::MAX);
}

#[test]
fn a_comparison_that_may_end_early_decides_as_a_whole_one_does() {
    let before = [7; PAGE];
    for threshold in [0, 1, 2, 7, 8, 64, 65] {
        for step in 1..=LINES_PER_PAGE {
            for first in [0, 1, 7, 8, 40] {
                let mut now = before;
                (first..LINES_PER_PAGE).step_by(step).for_each(|line| now[line * LINE + line] = 0);
                let mask = changed_lines(&before, &now);
                let expected = goes_by_bytes(mask, threshold).then_some(mask);
                assert_eq!(lines_by_bytes(&before, &now, threshold), expected, "{mask:x} by 1/{threshold}");
            }
        }
    }
}

#[test]
fn only_kept_lines_are_compared() {
    let (before, mut now) = ([7; PAGE], [7; PAGE]);
    for line in [0, 5, 6, 63] {
        now[line * LINE] = 8;
    }
    let all = changed_lines(&before, &now);
    for kept in [0, 1, 1 << 63, 0b110_0000, 0b101_1110, all, !all, LineMask::MAX] {
        assert_eq!(kept_lines_by_bytes(&before, &now, kept, 8), Some(all & kept), "{kept:x}");
        assert_eq!(
            kept_lines_by_bytes(&before, &now, kept, 32).is_some(),
            (all & kept).count_ones() < 2,
            "{kept:x}"
        );
    }
}

#[test]
fn bytes_lie_in_lines() {
    assert_eq!((lines_of(&(0..PAGE)), lines_of(&(70..70))), (LineMask::MAX, 0));
    assert_eq!((lines_of(&(63..65)), lines_of(&(64..128)), lines_of(&(4095..PAGE))), (0b11, 0b10, 1 << 63));
}

#[test]
fn the_eighth_part_of_a_page_goes_by_block() {
    assert!(goes_by_bytes(0b111_1111, 8), "7 of 64 lines");
    assert!(!goes_by_bytes(0b1111_1111, 8), "8 of 64 lines: R = 1/8 is not below 1/8");
}

#[test]
fn runs_cover_the_mask() {
    assert_eq!(runs(0).collect::<Vec<_>>(), []);
    assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
    assert_eq!(runs(1 << 63 | 0b1101).collect::<Vec<_>>(), [(0, 1), (2, 2), (63, 1)]);
}
