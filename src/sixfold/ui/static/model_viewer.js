"use strict";
// A viewer for GLB files: base color or texture, one light, rotated by dragging or arrow keys.
window.modelViewer = (() => {
  const VERTEX = `attribute vec3 p; attribute vec3 n; attribute vec2 t; attribute vec4 c; uniform mat4 view; uniform mat4 turn;
    varying vec3 normal; varying vec2 uv; varying vec4 tint;
    void main() { normal = mat3(turn) * n; uv = t; tint = c; gl_Position = view * turn * vec4(p, 1.0); }`;
  const FRAGMENT = `precision mediump float; varying vec3 normal; varying vec2 uv; varying vec4 tint;
    uniform vec4 base; uniform sampler2D skin; uniform float skinned;
    void main() {
      vec3 n = normalize(normal);
      float key = max(dot(n, normalize(vec3(0.5, 0.8, 0.6))), 0.0), fill = max(dot(n, normalize(vec3(-0.7, 0.1, 0.4))), 0.0);
      vec4 color = base * tint * mix(vec4(1.0), texture2D(skin, uv), skinned);
      vec3 lit = color.rgb * (0.35 + 0.12 * n.y + 0.75 * key + 0.25 * fill);
      gl_FragColor = vec4(mix(lit, pow(lit, vec3(1.0 / 2.2)), 1.0 - skinned), 1.0);
    }`;
  const KINDS = { 5120: Int8Array, 5121: Uint8Array, 5122: Int16Array, 5123: Uint16Array, 5125: Uint32Array, 5126: Float32Array };
  const COMPONENTS = { SCALAR: 1, VEC2: 2, VEC3: 3, VEC4: 4, MAT4: 16 };
  const UNIT = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];

  function multiply(a, b) {
    const out = new Array(16);
    for (let column = 0; column < 4; column += 1) for (let row = 0; row < 4; row += 1) {
      out[column * 4 + row] = [0, 1, 2, 3].reduce((sum, k) => sum + a[k * 4 + row] * b[column * 4 + k], 0);
    }
    return out;
  }

  function localMatrix(node) {
    if (node.matrix) return node.matrix;
    const [x, y, z, w] = node.rotation ?? [0, 0, 0, 1];
    const [sx, sy, sz] = node.scale ?? [1, 1, 1];
    const [tx, ty, tz] = node.translation ?? [0, 0, 0];
    return [
      (1 - 2 * (y * y + z * z)) * sx, 2 * (x * y + z * w) * sx, 2 * (x * z - y * w) * sx, 0,
      2 * (x * y - z * w) * sy, (1 - 2 * (x * x + z * z)) * sy, 2 * (y * z + x * w) * sy, 0,
      2 * (x * z + y * w) * sz, 2 * (y * z - x * w) * sz, (1 - 2 * (x * x + y * y)) * sz, 0, tx, ty, tz, 1];
  }

  function read(buffer) {
    const view = new DataView(buffer);
    if (view.getUint32(0, true) !== 0x46546c67) throw new Error("The file is not a GLB");
    const length = view.getUint32(12, true);
    const json = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 20, length)));
    return { json, bytes: buffer.slice(28 + length) };
  }

  function numbers({ json, bytes }, index) {
    const accessor = json.accessors[index];
    const part = json.bufferViews[accessor.bufferView];
    const [Kind, components] = [KINDS[accessor.componentType], COMPONENTS[accessor.type]];
    const start = (part.byteOffset ?? 0) + (accessor.byteOffset ?? 0);
    const size = components * Kind.BYTES_PER_ELEMENT;
    const stride = part.byteStride || size;
    const out = new Kind(accessor.count * components);
    for (let at = 0; at < accessor.count; at += 1) {
      out.set(new Kind(bytes.slice(start + at * stride, start + at * stride + size)), at * components);
    }
    if (!accessor.normalized) return out;
    return Float32Array.from(out, (value) => value / (2 ** (8 * Kind.BYTES_PER_ELEMENT) - 1));
  }

  function shapes(file) {
    const primitives = [];
    const walk = (index, parentMatrix) => {
      const node = file.json.nodes[index];
      const matrix = multiply(parentMatrix, localMatrix(node));
      for (const part of file.json.meshes[node.mesh]?.primitives ?? []) primitives.push({ part, matrix });
      for (const child of node.children ?? []) walk(child, matrix);
    };
    for (const root of file.json.scenes[file.json.scene ?? 0].nodes) walk(root, UNIT);
    return primitives.map(({ part, matrix }) => shape(file, part, matrix));
  }

  function shape(file, part, matrix) {
    const positions = numbers(file, part.attributes.POSITION);
    const p = new Float32Array(positions.length);
    for (let at = 0; at < positions.length; at += 3) for (let row = 0; row < 3; row += 1) {
      p[at + row] = matrix[row] * positions[at] + matrix[4 + row] * positions[at + 1] + matrix[8 + row] * positions[at + 2] + matrix[12 + row];
    }
    const indices = part.indices === undefined ? Uint32Array.from({ length: p.length / 3 }, (_, at) => at) : Uint32Array.from(numbers(file, part.indices));
    const optional = (name) => (part.attributes[name] === undefined ? null : numbers(file, part.attributes[name]));
    const material = file.json.materials?.[part.material]?.pbrMetallicRoughness ?? {};
    return {
      p, indices, n: optional("NORMAL") ?? flat(p, indices), t: optional("TEXCOORD_0"), c: optional("COLOR_0"),
      colorSize: part.attributes.COLOR_0 === undefined ? 4 : COMPONENTS[file.json.accessors[part.attributes.COLOR_0].type],
      base: material.baseColorFactor ?? [1, 1, 1, 1], texture: material.baseColorTexture?.index };
  }

  function flat(p, indices) {
    const out = new Float32Array(p.length);
    for (let at = 0; at < indices.length; at += 3) {
      const [a, b, c] = [indices[at] * 3, indices[at + 1] * 3, indices[at + 2] * 3];
      const u = [0, 1, 2].map((k) => p[b + k] - p[a + k]);
      const v = [0, 1, 2].map((k) => p[c + k] - p[a + k]);
      const cross = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
      for (const corner of [a, b, c]) cross.forEach((value, k) => { out[corner + k] += value; });
    }
    return out;
  }

  async function skin(gl, file, index) {
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    if (index === undefined) {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 1, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array([255, 255, 255, 255]));
      return texture;
    }
    const image = file.json.images[file.json.textures[index].source];
    const part = file.json.bufferViews[image.bufferView];
    const start = part.byteOffset ?? 0;
    const blob = new Blob([file.bytes.slice(start, start + part.byteLength)], { type: image.mimeType });
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, await createImageBitmap(blob));
    gl.generateMipmap(gl.TEXTURE_2D);
    return texture;
  }

  function linkProgram(gl) {
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    return program;
  }

  function bounds(meshes) {
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    for (const { p } of meshes) for (let at = 0; at < p.length; at += 1) {
      low[at % 3] = Math.min(low[at % 3], p[at]);
      high[at % 3] = Math.max(high[at % 3], p[at]);
    }
    return { middle: low.map((value, k) => (value + high[k]) / 2), radius: Math.hypot(...high.map((value, k) => value - low[k])) / 2 || 1 };
  }

  return async (canvas) => {
    const file = read(await (await fetch(canvas.dataset.glb)).arrayBuffer());
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: true, preserveDrawingBuffer: true });
    const meshes = shapes(file), program = linkProgram(gl), { middle, radius } = bounds(meshes);
    const uniform = (name) => gl.getUniformLocation(program, name);
    for (const one of meshes) {
      one.skin = await skin(gl, file, one.texture);
      one.array = gl.createVertexArray();
      gl.bindVertexArray(one.array);
      for (const [name, components] of [["p", 3], ["n", 3], ["t", 2], ["c", one.colorSize]]) {
        const at = gl.getAttribLocation(program, name);
        if (!one[name]) { gl.vertexAttrib4f(at, 1, 1, 1, 1); continue; }
        gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
        gl.bufferData(gl.ARRAY_BUFFER, Float32Array.from(one[name]), gl.STATIC_DRAW);
        gl.enableVertexAttribArray(at);
        gl.vertexAttribPointer(at, components, gl.FLOAT, false, 0, 0);
      }
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, one.indices, gl.STATIC_DRAW);
    }
    let [azimuth, tilt, paused] = [0.6, 0.35, matchMedia("(prefers-reduced-motion: reduce)").matches];
    const draw = () => {
      const [c, s, d, e] = [Math.cos(azimuth), Math.sin(azimuth), Math.cos(tilt), Math.sin(tilt)];
      const spin = multiply([1, 0, 0, 0, 0, d, e, 0, 0, -e, d, 0, 0, 0, 0, 1], [c, 0, -s, 0, 0, 1, 0, 0, s, 0, c, 0, 0, 0, 0, 1]);
      const turn = multiply(spin, [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, -middle[0], -middle[1], -middle[2], 1]);
      const [f, near, far, away] = [2.4, radius, radius * 6, radius * 2.3];
      const view = [f * (canvas.height / canvas.width), 0, 0, 0, 0, f, 0, 0, 0, 0, -(far + near) / (far - near), -1, 0, 0, (away * (far + near) - 2 * far * near) / (far - near), away];
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.uniformMatrix4fv(uniform("view"), false, view);
      gl.uniformMatrix4fv(uniform("turn"), false, turn);
      for (const one of meshes) {
        gl.bindVertexArray(one.array);
        gl.bindTexture(gl.TEXTURE_2D, one.skin);
        gl.uniform4fv(uniform("base"), one.base);
        gl.uniform1f(uniform("skinned"), one.texture === undefined ? 0 : 1);
        gl.drawElements(gl.TRIANGLES, one.indices.length, gl.UNSIGNED_INT, 0);
      }
    };
    const animate = () => { if (!canvas.isConnected) return; if (!paused) { azimuth += 0.008; draw(); } requestAnimationFrame(animate); };
    canvas.addEventListener("pointerdown", (event) => { paused = true; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!event.buttons) return;
      azimuth += event.movementX / 120; tilt += event.movementY / 160; draw();
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (!step) return;
      event.preventDefault(); paused = true; azimuth += step[0]; tilt += step[1]; draw();
    });
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(0, 0, 0, 0);
    draw();
    canvas.dataset.ready = String(meshes.reduce((sum, one) => sum + one.indices.length / 3, 0));
    animate();
  };
})();
