"""The sketches that Merlot makes, read by DataSketches' Java library, and its own read by Merlot."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit import java_oracle

from merlot.aggregates.cpc import CpcState
from merlot.aggregates.kll import KllState
from merlot.aggregates.kll_images import checked
from merlot.aggregates.theta import ThetaState, estimates
from merlot.values.types import TypeName

ORACLE = """
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.datasketches.cpc.CpcSketch;
import org.apache.datasketches.kll.KllDoublesSketch;
import org.apache.datasketches.memory.Memory;
import org.apache.datasketches.quantilescommon.QuantileSearchCriteria;
import org.apache.datasketches.theta.Sketches;
import org.apache.datasketches.theta.UpdateSketch;
public class Oracle {
  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in);
    while (lines.hasNext()) {
      String kind = lines.next();
      byte[] image = HexFormat.of().parseHex(lines.next());
      if (kind.equals("theta")) System.out.println(Sketches.wrapSketch(Memory.wrap(image)).getEstimate());
      if (kind.equals("cpc")) System.out.println(CpcSketch.heapify(image).getEstimate());
      if (kind.equals("kll"))
        System.out.println(
            KllDoublesSketch.heapify(Memory.wrap(image)).getQuantile(0.5, QuantileSearchCriteria.INCLUSIVE));
    }
    for (int number : new int[] {0, 1, 7, 500, 60000}) {
      UpdateSketch theta = UpdateSketch.builder().setNominalEntries(4096).build();
      KllDoublesSketch kll = KllDoublesSketch.newHeapInstance(200);
      for (int i = 0; i < number; i++) { theta.update("v" + i); kll.update(i); }
      String told = "theta " + Math.round(theta.getEstimate()) + " ";
      System.out.println(told + hex(theta.compact().toByteArray()));
      System.out.println(told + hex(theta.compact(false, null).toByteArray()));
      System.out.println(told + hex(theta.toByteArray()));
      System.out.println("kll " + number + " " + hex(kll.toByteArray()));
    }
  }
  static String hex(byte[] image) { return HexFormat.of().formatHex(image); }
}
"""
NUMBERS = (1, 2, 100, 60_000)
ONE = np.zeros(1, np.int64)


def made(state, number: int) -> str:
    texts = pa.array([f"v{place}" for place in range(number)])
    values = np.arange(number, dtype=np.float64) if isinstance(state, KllState) else texts
    state.add([values], None, number)
    return state.columns(ONE)[0].to_pylist()[0].hex()


@pytest.mark.cluster
def test_java_reads_what_merlot_writes_and_merlot_what_java_writes(tmp_path: Path):
    lines = []
    for number in NUMBERS:
        lines.append(("theta", made(ThetaState(TypeName.STRING, 1, 4_096), number)))
        lines.append(("cpc", made(CpcState(TypeName.STRING, 12, None), number)))
        lines.append(("kll", made(KllState(1, 200), number)))
    text = "\n".join(" ".join(line) for line in lines)
    answers = java_oracle.run(ORACLE, ("datasketches-java-*.jar", "datasketches-memory-*.jar"), text, tmp_path)
    for (kind, image), answer, number in zip(lines, answers, np.repeat(NUMBERS, 3), strict=False):
        if kind == "theta":
            assert estimates(pa.array([bytes.fromhex(image)]))[0] == round(float(answer))
        elif kind == "cpc":
            assert float(answer) == pytest.approx(number, rel=0.03)
        else:
            assert float(answer) == pytest.approx(number / 2, abs=max(1, 0.03 * number))
    for line in answers[len(lines) :]:
        kind, told, image = line.split()
        stored = pa.array([bytes.fromhex(image)])
        if kind == "theta":
            assert estimates(stored)[0] == int(told)
        else:
            assert checked(stored) is stored
